// SPDX-License-Identifier: Apache-2.0

package service

import (
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// everything is the planner of a kind that brings all there is.
type everything struct{ plan.Planner }

// Narrow implements plan.Planner.
func (everything) Narrow(target v1alpha1.OperationTarget) v1alpha1.OperationTarget { return target }

// Cases F5 and F6: whatever a kind brings, a version that cannot be meant is met with what may have been.
func TestCaseF5F6TargetOf(t *testing.T) {
	for name, row := range map[string]struct {
		asked *pb.OperationTarget
		want  v1alpha1.OperationTarget
		err   string
	}{
		"all without v": {
			asked: &pb.OperationTarget{TalosVersion: "1.14.1", KubernetesVersion: "1.36.3", CiliumVersion: "1.20.2"},
			want:  v1alpha1.OperationTarget{TalosVersion: "v1.14.1", KubernetesVersion: "v1.36.3", CiliumVersion: "v1.20.2"},
		},
		"nothing":                     {asked: &pb.OperationTarget{}},
		"Kubernetes without patch":    {asked: &pb.OperationTarget{KubernetesVersion: "1.36"}, err: `order.target.kubernetes_version "1.36": version "1.36" has no patch level: did you mean 1.36.0?`},
		"Kubernetes without its zero": {asked: &pb.OperationTarget{KubernetesVersion: "1.3.1"}, err: `order.target.kubernetes_version "1.3.1": version "1.3.1" is older than any Kubernetes that this hub knows (v1.29 to v1.37): did you mean v1.30.1 or v1.31.0?`},
		"Kubernetes of somebody else": {asked: &pb.OperationTarget{KubernetesVersion: "v1.36.2+k3s1"}, err: `order.target.kubernetes_version "v1.36.2+k3s1": version "v1.36.2+k3s1" is somebody's build, and no release of Kubernetes: did you mean v1.36.2?`},
		"Talos with a dot too many":   {asked: &pb.OperationTarget{TalosVersion: "1.1.4"}, err: `order.target.talos_version "1.1.4": version "1.1.4" is older than any Talos that this hub knows (v1.11 to v1.14): did you mean v1.14.0?`},
		"Cilium without patch":        {asked: &pb.OperationTarget{CiliumVersion: "v1.20"}, err: `order.target.cilium_version "v1.20": version "v1.20" has no patch level: did you mean v1.20.0?`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			target, err := targetOf("order.target", row.asked, v1alpha1.KubernetesKind, everything{})
			if row.err != "" {
				g.Expect(err).To(MatchError(row.err))
				g.Expect(len(row.err)).To(BeNumerically("<=", 256))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(target).To(Equal(row.want))
		})
	}
}
