// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"testing"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/hub/fleet"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// A long list of names that somebody may not read costs no more than its beginning.
func TestNamedNamespacesAreAskedAboutUpToTheFirstDenied(t *testing.T) {
	g := NewWithT(t)
	b := &rightsBackend{}
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf("n%03d", i)
	}
	list := func() error {
		fleet := fleet.New()
		fleet.MarkSynced()
		b.fleet = fleet
		_, err := (&Server{Backend: b, Hub: &pb.GetHubResponse{}}).ListOperations(t.Context(), connect.NewRequest(&pb.ListOperationsRequest{
			Filter: &pb.OperationFilter{Namespaces: names},
		}))
		return err
	}
	err := list()
	g.Expect(connect.CodeOf(err)).To(Equal(connect.CodePermissionDenied))
	g.Expect(err).To(MatchError(ContainSubstring(`in namespace "n000"`)))
	g.Expect(len(b.asked)).To(BeNumerically("<=", 17))

	b.may, b.asked = []string{": list talosoperations"}, nil
	g.Expect(list()).To(Succeed())
	g.Expect(b.asked).To(HaveLen(1), "who may list everywhere")

	b.may, b.asked = nil, nil
	for _, name := range names[:40] {
		b.may = append(b.may, name+": list talosoperations")
	}
	g.Expect(list()).To(MatchError(ContainSubstring(`in namespace "n040"`)))
	g.Expect(len(b.asked)).To(BeNumerically("<=", 49))
}

// Whose time is over hears that, and no names of what could not be found out in it.
func TestWhatIsNotKnownInTimeIsNotTold(t *testing.T) {
	w := newFleetWorld(t, opOf("secret", "one", "c1"))
	w.rights.lose("talosoperations secret")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := w.ListOperations(ctx, connect.NewRequest(&pb.ListOperationsRequest{}))
	w.g.Expect(connect.CodeOf(err)).To(Equal(connect.CodeCanceled))
	w.g.Expect(err.Error()).NotTo(ContainSubstring("secret"))
}
