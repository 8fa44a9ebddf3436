// SPDX-License-Identifier: Apache-2.0

package service

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestMachine(t *testing.T) {
	w := newWorld(t,
		machine("c1-w-1", "c1", "w-1", "Worker"), machine("c1-w-2", "c1", "W-2.Example", "Worker"), machine("c2-w-1", "c2", "w-1", "Worker"),
		machine("c1-x", "c1", "own", "Worker"), machine("own", "c3", "c1-w-1", "Worker"),
	)
	for name, row := range map[string]struct{ cluster, ask, want, err string }{
		"by full name": {"", "c1-w-1", "c1-w-1", ""},
		"by full name, which is the Node of another, listed before": {"", "own", "own", ""},
		"by node":               {"", "w-2.example", "c1-w-2", ""},
		"by node, in a cluster": {"c2", "w-1", "c2-w-1", ""},
		"in another cluster":    {"c2", "c1-w-1", "", `there is no machine "c1-w-1"; list them with: ichor machine list`},
		"nobody":                {"", "w-9", "", `there is no machine "w-9"; list them with: ichor machine list`},
		"one of two":            {"", "w-1", "", `machine "w-1": it is one of c1-w-1, c2-w-1: name the cluster with --cluster, or use a full name`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			found, err := w.Machine(w.ctx, "default", row.cluster, row.ask)
			if row.err != "" {
				g.Expect(err).To(MatchError(row.err))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found.Name).To(Equal(row.want))
		})
	}
}
