// SPDX-License-Identifier: Apache-2.0

package command

import (
	"os"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

func rotationPlan() *pb.Plan {
	return &pb.Plan{
		Cluster: ref("default", "prod-1"), Kind: pb.OperationKind_OPERATION_KIND_CA_ROTATION, Effect: pb.Effect_EFFECT_CA_ROTATION,
		Confirmation: pb.Confirmation_CONFIRMATION_NAME, Stages: []*pb.PlanStage{{Name: "Prepare"}, {Name: "TalosAccept", Disruptive: true}},
	}
}

// Nobody rotates authorities without the name of the cluster, and whoever names none rotates both.
func TestRotateCA(t *testing.T) {
	g := NewWithT(t)
	h, u := planning(t, rotationPlan())
	for _, args := range [][]string{{"--authority", "etcd"}, {"--authority", "talos,talos"}, {"--authority", "both,talos"}, {"--authority", ""}, {"--max-unavailable", "many"}} {
		r := u.ichor(with([]string{"cluster", "rotate-ca", "prod-1", "--confirm", "prod-1"}, args...)...)
		g.Expect(r.Code).To(Equal(2), "%v", args)
		g.Expect(r.Err).To(ContainSubstring(args[0]), "%v", args)
	}
	g.Expect(of[*pb.PlanOperationRequest](h)).To(BeEmpty(), "nothing is asked before the command line is right")
	r := u.ichor("cluster", "rotate-ca", "prod-1", "--yes")
	g.Expect(r.Code).To(Equal(2))
	g.Expect(r.Err).To(And(ContainSubstring("replace the certificate authorities of Talos and Kubernetes; certificate authorities change"), ContainSubstring("add --confirm prod-1")))

	for authority, want := range map[string][]string{"both": {"Talos", "Kubernetes"}, "talos": {"Talos"}, "kubernetes,talos": {"Kubernetes", "Talos"}, "Kubernetes": {"Kubernetes"}} {
		h, u := planning(t, rotationPlan())
		r := u.ichor("cluster", "rotate-ca", "prod-1", "--authority", authority, "--max-unavailable", "25%", "--confirm", "prod-1")
		g.Expect(r.Code).To(BeZero(), r.Err)
		g.Expect(of[*pb.CreateOperationRequest](h)[0].GetOrder()).To(BeComparableTo(&pb.OperationOrder{
			Cluster: ref("default", "prod-1"), Kind: pb.OperationKind_OPERATION_KIND_CA_ROTATION, MaxUnavailable: "25%",
			Parameters: &pb.OperationParameters{Parameters: &pb.OperationParameters_CaRotation{CaRotation: &pb.CARotationParameters{Authorities: want}}},
		}, protoEqual), authority)
	}
	g.Expect(u.ichor("operation", "plan", "rotate-ca", "prod-1").Code).To(BeZero())
}

// Who turns back is asked, since nothing turns that back.
func TestTurnBack(t *testing.T) {
	g := NewWithT(t)
	h := newFakeHub(t)
	op := upgrade(inProgress)
	h.answer(
		&pb.TurnBackOperationResponse{Operation: op, Changed: true}, &pb.TurnBackOperationResponse{Operation: op},
	)
	u := newUser(t, h)
	g.Expect(u.ichor("op", "turn-back", "x").Code).To(Equal(2))
	g.Expect(of[*pb.TurnBackOperationRequest](h)).To(BeEmpty())
	g.Expect(u.ichor("op", "turn-back", "x", "--yes")).To(Equal(result{Out: "Operation x turns back. Follow it with: ichor operation watch x\n"}))
	g.Expect(u.ichor("op", "turn-back", "x", "--yes")).To(Equal(result{Err: "Operation x turns back already: nothing to do.\n"}))
}

// The bundle is for its owner's eyes, is not written over by mistake, and leaves no file where there is none.
func TestBundleExport(t *testing.T) {
	g := NewWithT(t)
	h := newFakeHub(t)
	h.answer(&pb.ExportBundleResponse{Bundle: []byte("secret"), Changed: true})
	u := newUser(t, h)
	file := filepath.Join(t.TempDir(), "bundle.yaml")
	g.Expect(u.ichor("cluster", "bundle-export", "prod-1").Code).To(Equal(2), "where to is asked for")
	r := u.ichor("cluster", "bundle-export", "prod-1", "--file", file)
	g.Expect(r).To(Equal(result{Err: "The bundle of cluster prod-1 is in " + file + ". Whoever has it has the cluster.\n"}))
	g.Expect(os.ReadFile(file)).To(Equal([]byte("secret")))
	info, err := os.Stat(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)))
	r = u.ichor("cluster", "bundle-export", "prod-1", "--file", file)
	g.Expect(r.Code).To(Equal(2))
	g.Expect(r.Err).To(ContainSubstring("is there already: choose another, or add --overwrite"))
	g.Expect(os.WriteFile(file, []byte("the backup of before"), 0o644)).To(Succeed())
	g.Expect(os.Chmod(file, 0o644)).To(Succeed())
	g.Expect(u.ichor("cluster", "bundle-export", "prod-1", "--file", file, "--overwrite").Code).To(BeZero())
	g.Expect(os.ReadFile(file)).To(Equal([]byte("secret")))
	info, err = os.Stat(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)), "whatever it was before")
	g.Expect(u.ichor("cluster", "bundle-export", "prod-1", "--file", "-").Out).To(Equal("secret"))

	refusing := newFakeHub(t)
	refusing.refuse(&pb.ExportBundleResponse{}, connect.CodePermissionDenied, "bob may not get secrets")
	other := filepath.Join(t.TempDir(), "none.yaml")
	r = newUser(t, refusing).ichor("cluster", "bundle-export", "prod-1", "--file", other)
	g.Expect(r.Err).To(ContainSubstring("exporting the bundle of cluster prod-1: bob may not get secrets"))
	g.Expect(os.ReadDir(filepath.Dir(other))).To(BeEmpty())

	// It may be the only backup.
	g.Expect(newUser(t, refusing).ichor("cluster", "bundle-export", "prod-1", "--file", file, "--overwrite").Code).NotTo(BeZero())
	g.Expect(os.ReadFile(file)).To(Equal([]byte("secret")))
	g.Expect(os.ReadDir(filepath.Dir(file))).To(HaveLen(1))
}
