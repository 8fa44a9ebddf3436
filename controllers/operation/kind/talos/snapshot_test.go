// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/target"
)

// The stage is the whole cluster's: no machine is looked at, and the call answers all.
func TestTheSnapshotStage(t *testing.T) {
	whole := func(step v1alpha1.OperationStep, change ...func(*v1alpha1.UnitStatus)) kind.Unit {
		u := unit("Snapshot", step, change...)
		u.Machine, u.Status.Name = nil, "Snapshot"
		return u
	}
	gaveUpNow := func(u *v1alpha1.UnitStatus) { failed(u); u.FailureTime = metav1.Now() }
	park := kind.Action{Verdict: "Park"}
	for name, row := range map[string]struct {
		unit         kind.Unit
		next, settle kind.Action
	}{
		"not begun": {whole(""), call("Snapshotting"), park},
		"stored":    {whole("Snapshotting", succeeded), done, done},
		"failed":    {whole("Snapshotting", failed), fail("Snapshotting failed: it broke", ""), park},
		"given up":  {whole("Snapshotting", gaveUpNow), fail("Snapshotting failed: it broke", ""), park},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			scope := to("v1.14.1", "")
			g.Expect(executor().Observe(t.Context(), scope, row.unit)).To(Equal(kind.Observation{}))
			g.Expect(executor().Next(scope, row.unit, kind.Observation{})).To(Equal(row.next))
			g.Expect(executor().Settle(scope, row.unit, kind.Observation{})).To(Equal(row.settle))
			g.Expect(executor().Unsafe(row.unit)).To(BeEmpty())
			g.Expect(executor().Undo(t.Context(), scope, row.unit, "Snapshotting", errors.New("x"))).To(Succeed())
		})
	}
}

// asked is a storage that remembers the names.
type asked struct{ names []string }

func (a *asked) Take(_ context.Context, _ target.Target, _ guard.Func, name string) error {
	a.names = append(a.names, name)
	return fmt.Errorf("%w: no bucket", kind.ErrNotStored)
}

func TestOneSnapshotForEachOperation(t *testing.T) {
	g := NewWithT(t)
	storage := &asked{}
	e := New(nil, nil, "", storage)
	scope := kind.Scope{Owner: "default/up", OperationID: "11111111-2222"}
	_, err := e.Do(t.Context(), scope, kind.Unit{}, "Snapshotting")
	g.Expect(e.Classify(err)).To(BeEquivalentTo("Permanent"), "trying once more does not help")
	_, _ = e.Do(t.Context(), scope, kind.Unit{}, "Snapshotting")
	g.Expect(storage.names).To(Equal([]string{"up-11111111", "up-11111111"}), "whoever asks again asks for the same")
}
