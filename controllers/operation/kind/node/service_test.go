// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/talos"
)

// Only what the service itself tells says that it was restarted: it runs, it is healthy, and it has started since.
func TestNextRestart(t *testing.T) {
	later := noon.Add(time.Second)
	claimed := func(change func(*v1alpha1.UnitStatus)) func(*v1alpha1.UnitStatus) {
		return func(s *v1alpha1.UnitStatus) {
			s.ServiceStartTime = metav1.NewMicroTime(noon)
			change(s)
		}
	}
	service := func(change func(*talos.Service)) talos.Service {
		s := talos.Service{ID: "kubelet", Running: true, Healthy: true, Checked: true, Started: noon}
		change(&s)
		return s
	}
	asItWas := service(func(*talos.Service) {})
	call := kind.Action{Verdict: kind.Call, Step: "Restarting", ServiceStart: noon}
	waits := func(message string) kind.Action { return kind.Action{Verdict: kind.Wait, Message: message} }
	for name, row := range map[string]struct {
		step    v1alpha1.OperationStep
		status  func(*v1alpha1.UnitStatus)
		service talos.Service
		want    kind.Action
	}{
		"begin":                          {"", nil, asItWas, call},
		"begin, it does not run":         {"", nil, talos.Service{ID: "kubelet"}, kind.Action{Verdict: kind.Call, Step: "Restarting"}},
		"not known":                      {"", nil, talos.Service{ID: "ext-b"}, kind.Action{Verdict: kind.Fail, Message: `machine c1-w-1 has no service "kubelet"; it has ext-b`}},
		"asked, still the old one":       {"Restarting", claimed(succeeded), asItWas, waits("waiting until service kubelet has started anew")},
		"asked, stopping":                {"Restarting", claimed(succeeded), talos.Service{ID: "kubelet"}, waits("waiting until service kubelet has started anew")},
		"started, not checked yet":       {"Restarting", claimed(succeeded), service(func(s *talos.Service) { s.Started, s.Checked, s.Healthy = later, false, false }), waits("waiting until service kubelet is healthy")},
		"started, sick":                  {"Restarting", claimed(succeeded), service(func(s *talos.Service) { s.Started, s.Healthy = later, false }), waits("waiting until service kubelet is healthy")},
		"started":                        {"Restarting", claimed(succeeded), service(func(s *talos.Service) { s.Started = later }), kind.Action{Verdict: kind.Done}},
		"lost, and started":              {"Restarting", claimed(failed("Interrupted")), service(func(s *talos.Service) { s.Started = later }), kind.Action{Verdict: kind.Done}},
		"lost, and did not arrive":       {"Restarting", claimed(failed("Interrupted")), asItWas, call},
		"lost, and on its way":           {"Restarting", claimed(failed("Interrupted")), talos.Service{ID: "kubelet"}, waits("waiting until service kubelet has started anew")},
		"refused":                        {"Restarting", claimed(failed("Permanent")), asItWas, kind.Action{Verdict: kind.Fail, Message: "Restarting failed: it broke"}},
		"refused, and started all along": {"Restarting", claimed(failed("Permanent")), service(func(s *talos.Service) { s.Started = later }), kind.Action{Verdict: kind.Done}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("RestartService", func(n *v1alpha1.NodeParameters) { n.Service = "kubelet" })
			w.talos.Serve("10.0.1.1", row.service)
			NewWithT(t).Expect(w.next(t, w.unit("w-1", row.step, row.status))).To(Equal(row.want))
		})
	}
}

// A restart that was heard is not asked for again.
func TestDoRestartLooksFirst(t *testing.T) {
	g := NewWithT(t)
	w := newWorld("RestartService", func(n *v1alpha1.NodeParameters) { n.Service = "kubelet" })
	u := w.unit("w-1", "Restarting", func(s *v1alpha1.UnitStatus) { s.ServiceStartTime = metav1.NewMicroTime(noon.Add(-time.Second)) })
	_, err := w.executor.Do(t.Context(), w.scope, u, u.Status.Step)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.talos.Calls()).To(BeEmpty())
}

func TestRestartWaitsForTheMachine(t *testing.T) {
	g := NewWithT(t)
	w := newWorld("RestartService", func(n *v1alpha1.NodeParameters) { n.Service = "kubelet" })
	w.talos.Silence("10.0.1.1", true)
	g.Expect(w.next(t, w.unit("w-1", "", nil))).To(HaveField("Reason", "TargetReachable"))
	g.Expect(w.next(t, w.unit("w-1", "Restarting", succeeded))).To(Equal(kind.Action{Verdict: kind.Wait, Message: "waiting for the Talos API: no answer"}))
	settled := w.executor.Settle(w.scope, w.unit("w-1", "", nil), kind.Observation{})
	g.Expect(settled.Verdict).To(Equal(kind.Park))
}
