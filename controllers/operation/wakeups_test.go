// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// Case E5: the queue goes by the time of creation, and by name only among those of the same second.
func TestCaseE5Before(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	op := func(name string, after time.Duration) *v1alpha1.TalosOperation {
		return &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(noon.Add(after))}}
	}
	for name, row := range map[string]struct{ queue []*v1alpha1.TalosOperation }{
		"names against the time":   {[]*v1alpha1.TalosOperation{op("c", 0), op("b", time.Second), op("a", time.Minute)}},
		"names along the time":     {[]*v1alpha1.TalosOperation{op("a", 0), op("b", time.Second), op("c", time.Minute)}},
		"the same second":          {[]*v1alpha1.TalosOperation{op("a", 0), op("b", 0), op("c", 0)}},
		"the same second and time": {[]*v1alpha1.TalosOperation{op("z", 0), op("a", time.Second), op("b", time.Second)}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			for i, first := range row.queue {
				g.Expect(before(first, first)).To(BeFalse(), "nobody is before itself")
				for _, second := range row.queue[i+1:] {
					g.Expect(before(first, second)).To(BeTrue(), "%s before %s", first.Name, second.Name)
					g.Expect(before(second, first)).To(BeFalse(), "%s before %s", second.Name, first.Name)
				}
			}
			mixed := slices.Clone(row.queue)
			slices.Reverse(mixed)
			slices.SortFunc(mixed, func(a, b *v1alpha1.TalosOperation) int {
				if before(a, b) {
					return -1
				}
				return 1
			})
			g.Expect(mixed).To(Equal(row.queue))
		})
	}
}
