// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/kube"
	kubefake "ichor.maesh.dev/hub/providers/kube/fake"
	"ichor.maesh.dev/hub/providers/talos"
	talosfake "ichor.maesh.dev/hub/providers/talos/fake"
	"ichor.maesh.dev/hub/providers/target"
)

func at(name, address string, role v1alpha1.MachineRole) *v1alpha1.TalosMachine {
	return &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TalosMachineSpec{Role: role, Address: address},
	}
}

func TestViewAsksNodesAndEveryControlPlane(t *testing.T) {
	g := NewWithT(t)
	machines, api := talosfake.New(), kubefake.New()
	machines.Add("10.0.0.1", talos.Machine{NodeName: "cp-1"}, &talos.Etcd{MemberID: 1, Leader: 1})
	machines.Add("10.0.0.2", talos.Machine{NodeName: "cp-2"}, &talos.Etcd{MemberID: 2, Leader: 1})
	machines.Silence("10.0.0.2", true)
	machines.Add("10.0.1.1", talos.Machine{NodeName: "w-1"}, nil)
	api.Set(kube.Node{Name: "cp-1", Ready: true})
	api.Set(kube.Node{Name: "w-1", Unschedulable: true})
	api.SetRecord(kube.Record{OwnerID: "hub", Sequence: 3})

	view := Viewer{Talos: machines, Kube: api}.View(t.Context(), target.Target{}, []*v1alpha1.TalosMachine{
		at("c1-cp-1", "10.0.0.1", "ControlPlane"), at("c1-cp-2", "10.0.0.2", "ControlPlane"), at("c1-w-1", "10.0.1.1", "Worker"),
	})

	g.Expect(view).To(Equal(View{
		Nodes: map[string]kube.Node{"cp-1": {Name: "cp-1", Ready: true}, "w-1": {Name: "w-1", Unschedulable: true}},
		Etcd: map[string]EtcdView{
			"c1-cp-1": {Etcd: talos.Etcd{MemberID: 1, Leader: 1}},
			"c1-cp-2": {Trouble: "no answer"},
		},
		Record: kube.Record{OwnerID: "hub", Sequence: 3, Version: "1"},
	}))
}

// noKube and noTalos hand out no clients; noNodes hands out one that reads nothing.
type (
	noKube  struct{ kube.Provider }
	noTalos struct{ talos.Provider }
	noNodes struct{ kube.Provider }
)

var errNoSecret = fmt.Errorf("secret a/b is %w", credentials.ErrMissing)

func (noKube) Reader(context.Context, target.Target) (kube.Reader, error) { return nil, errNoSecret }

func (noTalos) Reader(context.Context, target.Target) (talos.Reader, error) { return nil, errNoSecret }

func (noNodes) Reader(context.Context, target.Target) (kube.Reader, error) {
	return brokenReader{}, nil
}

type brokenReader struct{ kube.Reader }

func (brokenReader) Nodes(context.Context) ([]kube.Node, error) {
	return nil, errors.New("dial tcp 10.0.0.1:6443: connection refused")
}

func (brokenReader) Record(context.Context) (kube.Record, error) {
	return kube.Record{}, errors.New("dial tcp 10.0.0.1:6443: connection refused")
}

// What does not answer is part of the view, in words that stay the same for the same fault.
func TestViewTellsTrouble(t *testing.T) {
	controlPlane := []*v1alpha1.TalosMachine{at("c1-cp-1", "10.0.0.1", "ControlPlane")}
	t.Run("credentials", func(t *testing.T) {
		NewWithT(t).Expect(Viewer{Talos: noTalos{}, Kube: noKube{}}.View(t.Context(), target.Target{}, controlPlane)).To(Equal(View{
			NodesTrouble: "secret a/b is missing", RecordTrouble: "secret a/b is missing",
			Etcd: map[string]EtcdView{"c1-cp-1": {Trouble: "secret a/b is missing"}},
		}))
	})
	t.Run("network", func(t *testing.T) {
		view := Viewer{Talos: talosfake.New(), Kube: noNodes{}}.View(t.Context(), target.Target{}, controlPlane)
		NewWithT(t).Expect(view).To(Equal(View{
			NodesTrouble: "no answer", RecordTrouble: "no answer", Etcd: map[string]EtcdView{"c1-cp-1": {Trouble: "no answer"}},
		}))
	})
}
