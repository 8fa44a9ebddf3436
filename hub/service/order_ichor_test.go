// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// theHub is a hub that operations can upgrade.
func theHub(namespace, version string) *v1alpha1.IchorInstallation {
	i := &v1alpha1.IchorInstallation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ichor-hub"}}
	i.Status = v1alpha1.IchorInstallationStatus{Version: version, Conditions: []metav1.Condition{{Type: v1alpha1.UpgradableCondition, Status: metav1.ConditionTrue}}}
	return i
}

func toHub(version string) Order {
	return Order{
		Cluster: c1, Spec: v1alpha1.TalosOperationSpec{ClusterName: c1.Name, Kind: v1alpha1.IchorKind}, Target: v1alpha1.OperationTarget{IchorVersion: version},
	}
}

func TestTheVersionOfTheHubIsWrittenBeforeTheOperation(t *testing.T) {
	w := newWorld(t, cluster(theHub("ichor-system", "v0.1.0"))...)
	start, err := w.Plan(w.ctx, toHub("v0.2.0"))
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(start.Refusals).To(BeEmpty())
	w.g.Expect(start.Command()).To(Equal("ichor upgrade ichor v0.2.0 --namespace default --cluster c1"))
	created, err := w.Create(w.ctx, start, CreateOptions{})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(w.writes).To(Equal([]string{"dry-run TalosOperation", "apply IchorInstallation", "create TalosOperation"}))
	w.g.Expect(created.Wrote).To(Equal([]string{"spec.version is v0.2.0"}))
	w.g.Expect(created.Operation.Spec).To(And(HaveField("ClusterName", "c1"), HaveField("ExpectedTarget", HaveValue(Equal(v1alpha1.OperationTarget{IchorVersion: "v0.2.0"})))))
	hub := &v1alpha1.IchorInstallation{}
	w.g.Expect(w.Client.Get(w.ctx, client.ObjectKey{Namespace: "ichor-system", Name: "ichor-hub"}, hub)).To(Succeed())
	w.g.Expect(hub.Spec.Version).To(Equal("v0.2.0"))
}

func TestASecondWriteThatFailsSaysWhatTheFirstDid(t *testing.T) {
	w := newWorld(t, cluster(theHub("ichor-system", "v0.1.0"))...)
	start, err := w.Plan(w.ctx, toHub("v0.2.0"))
	w.g.Expect(err).NotTo(HaveOccurred())
	w.fail = func(write string) error {
		if write == "create TalosOperation" {
			return errors.New("etcd is full")
		}
		return nil
	}
	_, err = w.Create(w.ctx, start, CreateOptions{})
	var partly *PartlyDoneError
	w.g.Expect(errors.As(err, &partly)).To(BeTrue())
	w.g.Expect(partly.Done).To(Equal("of IchorInstallation ichor-hub, spec.version is v0.2.0 now"))
}

func TestUpgradesOfTheHubThatAreRefused(t *testing.T) {
	standalone := theHub("ichor-system", "v0.1.0")
	standalone.Status.Conditions[0].Status, standalone.Status.Conditions[0].Message = metav1.ConditionFalse, "the hub runs standalone"
	inGit := theHub("ichor-system", "v0.1.0")
	inGit.Labels = map[string]string{"kustomize.toolkit.fluxcd.io/name": "hub", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
	for name, row := range map[string]struct {
		hubs          []client.Object
		version       string
		gate, message string
	}{
		"no hub":          {version: "v0.2.0", gate: "HubUpgradable", message: "there is no IchorInstallation"},
		"standalone":      {hubs: []client.Object{standalone}, version: "v0.2.0", gate: "HubUpgradable", message: "the hub runs standalone"},
		"a minor too far": {hubs: []client.Object{theHub("ichor-system", "v0.1.0")}, version: "v0.3.0", gate: "HubVersionPath", message: "skips v0.2"},
		"kept in Git": {
			hubs: []client.Object{inGit}, version: "v0.2.0", gate: "SpecTracked",
			message: `IchorInstallation ichor-hub is kept by Kustomization "flux-system/hub" of Flux, which would undo a change made here`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, cluster(row.hubs...)...)
			start, err := w.Plan(w.ctx, toHub(row.version))
			w.g.Expect(err).NotTo(HaveOccurred())
			w.g.Expect(start.Refusals).To(ConsistOf(And(HaveField("Gate", row.gate), HaveField("Message", ContainSubstring(row.message)))))
			_, err = w.Create(w.ctx, start, CreateOptions{})
			w.g.Expect(err).To(HaveOccurred())
			w.g.Expect(w.writes).To(BeEmpty())
		})
	}
}

func TestWhichHubIsMeant(t *testing.T) {
	w := newWorld(t, cluster(theHub("ichor-system", "v0.1.0"), theHub("other", "v0.2.0"))...)
	_, err := w.Plan(w.ctx, toHub("v0.2.0"))
	w.g.Expect(err).To(MatchError(ContainSubstring("several hubs work on this management cluster, in namespaces ichor-system, other")))
	w.Installation = client.ObjectKey{Namespace: "other", Name: "ichor-hub"}
	start, err := w.Plan(w.ctx, toHub("v0.2.0"))
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(start.Installation.Namespace).To(Equal("other"))
	w.g.Expect(start.AtTarget()).To(BeFalse(), "nobody has asked for it yet")
	start.Declared.IchorVersion = "v0.2.0"
	w.g.Expect(start.AtTarget()).To(BeTrue())
}

func TestOrdersOfTheHub(t *testing.T) {
	g := NewWithT(t)
	s := &Server{}
	order := &pb.OperationOrder{
		Kind: pb.OperationKind_OPERATION_KIND_ICHOR, Cluster: &pb.Reference{Namespace: "default", Name: "c1"}, Target: &pb.OperationTarget{IchorVersion: "0.2.0"},
	}
	made, err := s.orderOf(order)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(made.Target).To(Equal(v1alpha1.OperationTarget{IchorVersion: "v0.2.0"}))
	order.Target = &pb.OperationTarget{IchorVersion: "v0.2.0-rc.1"}
	_, err = s.orderOf(order)
	g.Expect(err).To(MatchError(And(ContainSubstring("order.target.ichor_version"), ContainSubstring("not a final version"))))
	order.Target = &pb.OperationTarget{TalosVersion: "v1.14.1"}
	_, err = s.orderOf(order)
	g.Expect(err).To(MatchError(ContainSubstring("kind ichor brings ichor_version and nothing else")))
}
