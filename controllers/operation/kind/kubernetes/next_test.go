// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/kubernetes/machineimage"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/storage"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/providers/target"
)

const (
	was = "v1.35.2"
	is  = "v1.36.1"
)

// scope is an upgrade of two control planes and a worker.
func scope(change ...func(*kind.Scope)) kind.Scope {
	s := kind.Scope{Owner: "default/op-1", Machines: 3, Target: v1alpha1.OperationTarget{KubernetesVersion: is}}
	for _, name := range []string{"cp-1", "cp-2"} {
		s.Approved = append(s.Approved, machine(name, v1alpha1.ControlPlaneRole))
	}
	s.Approved = append(s.Approved, machine("w-1", v1alpha1.WorkerRole))
	for _, c := range change {
		c(&s)
	}
	return s
}

func machine(name string, role v1alpha1.MachineRole) *v1alpha1.TalosMachine {
	m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "c1-" + name}}
	m.Spec = v1alpha1.TalosMachineSpec{Role: role, Address: "10.0.0.1", UUID: "uuid-1", Approval: v1alpha1.Approved}
	m.Status.NodeName = name
	return m
}

// unit is cp-1 in a stage.
func unit(stage string, step v1alpha1.OperationStep, change ...func(*v1alpha1.UnitStatus)) kind.Unit {
	u := kind.Unit{Status: v1alpha1.UnitStatus{Name: "c1-cp-1", Stage: stage, Step: step}, Machine: machine("cp-1", v1alpha1.ControlPlaneRole)}
	if step != "" && step != v1alpha1.VerifyingStep {
		u.Status.Outcome = &v1alpha1.CallOutcome{Result: v1alpha1.CallSucceeded}
	}
	for _, c := range change {
		c(&u.Status)
	}
	return u
}

func failed(u *v1alpha1.UnitStatus) {
	u.Outcome = &v1alpha1.CallOutcome{Result: v1alpha1.CallFailed, Class: v1alpha1.ErrorPermanent, Message: "it broke"}
}

func gaveUp(u *v1alpha1.UnitStatus) {
	failed(u)
	u.FailureTime = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
}

func img(component machineimage.Component, version string) string {
	return "registry.k8s.io/" + string(component) + ":" + version
}

// seen is cp-1, which runs everything in one version and is told to; so does cp-2.
func seen(version string, change ...func(*kind.Observation, *look)) kind.Observation {
	o := kind.Observation{
		Talos: talos.Machine{UUID: "uuid-1", NodeName: "cp-1", Stage: "running", Ready: true},
		Node:  &kube.Node{Name: "cp-1", Ready: true, KubeletVersion: version},
	}
	l := look{
		runs:     talos.Kubernetes{Components: map[string]talos.Component{}, Kubelet: talos.Component{Image: img(machineimage.Kubelet, version)}},
		settings: map[machineimage.Component]machineimage.Setting{},
	}
	for _, component := range components {
		l.settings[component] = machineimage.Setting{Image: img(component, version)}
	}
	for _, component := range []machineimage.Component{machineimage.APIServer, machineimage.ControllerManager, machineimage.Scheduler} {
		l.runs.Components[string(component)] = talos.Component{Image: img(component, version), ConfigVersion: "1"}
		for _, node := range []string{"cp-1", "cp-2"} {
			l.pods = append(l.pods, kube.ComponentPod{
				Component: string(component), Node: node, Image: img(component, version), Running: img(component, version), ConfigVersion: "1", Ready: true,
			})
		}
	}
	for _, c := range change {
		c(&o, &l)
	}
	o.Own = l
	return o
}

// told makes Talos and the config have another image of a component.
func told(component machineimage.Component, text string) func(*kind.Observation, *look) {
	return func(_ *kind.Observation, l *look) {
		l.settings[component] = machineimage.Setting{Image: text}
		if component == machineimage.Kubelet {
			l.runs.Kubelet.Image = text
			return
		}
		l.runs.Components[string(component)] = talos.Component{Image: text, ConfigVersion: "2"}
	}
}

func pod(component machineimage.Component, node string, change func(*kube.ComponentPod)) func(*kind.Observation, *look) {
	return func(_ *kind.Observation, l *look) { change(podOf(l.pods, component, node)) }
}

// servers makes all API servers run the target.
func servers(_ *kind.Observation, l *look) {
	for i := range l.pods {
		if l.pods[i].Component == string(machineimage.APIServer) {
			l.pods[i].Image, l.pods[i].Running = img(machineimage.APIServer, is), img(machineimage.APIServer, is)
		}
	}
}

func pendingConfig(_ *kind.Observation, l *look) { l.pending = true }

func silent(o *kind.Observation, _ *look) { o.TalosTrouble = "no answer" }

type row struct {
	unit kind.Unit
	seen kind.Observation
	want kind.Action
	as   func(*kind.Scope)
}

var executor = New(nil, nil, nil)

func run(t *testing.T, rows map[string]row, decide func(kind.Scope, kind.Unit, kind.Observation) kind.Action) {
	t.Helper()
	for name, r := range rows {
		t.Run(name, func(t *testing.T) {
			s := scope()
			if r.as != nil {
				r.as(&s)
			}
			got := decide(s, r.unit, r.seen)
			NewWithT(t).Expect(got).To(Equal(r.want))
			NewWithT(t).Expect(len(got.Message)).To(BeNumerically("<=", 256))
		})
	}
}

func call(step v1alpha1.OperationStep) kind.Action {
	return kind.Action{Verdict: kind.Call, Step: step}
}

func gateWait(gate, message string) kind.Action {
	return kind.Action{Verdict: kind.Wait, Reason: gate, Message: message}
}

func verify(message string) kind.Action {
	return kind.Action{Verdict: kind.Wait, Step: v1alpha1.VerifyingStep, Message: message}
}

var done = kind.Action{Verdict: kind.Done}

// Cases F1 and F14: each component of each machine is told by content, and left alone where it is there.
func TestCaseF1F14StaticPods(t *testing.T) {
	const apply, verifying = v1alpha1.ApplyingStep, v1alpha1.VerifyingStep
	api := machineimage.APIServer
	run(t, map[string]row{
		"behind":      {unit: unit("APIServer", ""), seen: seen(was), want: call(apply)},
		"there":       {unit: unit("APIServer", ""), seen: seen(is), want: done},
		"no answer":   {unit: unit("APIServer", ""), seen: seen(was, silent), want: gateWait("TargetReachable", "machine c1-cp-1 does not answer: no answer")},
		"another one": {unit: unit("APIServer", ""), seen: seen(was, func(o *kind.Observation, _ *look) { o.Talos.UUID = "uuid-9" }), want: kind.Action{Verdict: kind.Fail, Message: `the machine at 10.0.0.1 has UUID "uuid-9", but c1-cp-1 has UUID "uuid-1"`}},
		"a config nobody can read": {
			unit: unit("APIServer", ""), seen: seen(was, func(_ *kind.Observation, l *look) { l.configTrouble = "reading the machine config: it broke" }),
			want: kind.Action{Verdict: kind.Fail, Message: "reading the machine config: it broke"},
		},
		"no Kubernetes API": {
			unit: unit("APIServer", ""), seen: seen(was, func(_ *kind.Observation, l *look) { l.podsTrouble = kubeTrouble("no answer") }),
			want: gateWait("TargetReachable", "the Kubernetes API of the cluster cannot be read: no answer"),
		},
		"a downgrade": {unit: unit("APIServer", ""), seen: seen("v1.36.3"), want: kind.Action{Verdict: kind.Fail, Message: "kube-apiserver: v1.36.1 is older than the running v1.36.3: a downgrade is no upgrade"}},
		"someone's trial": {unit: unit("APIServer", ""), seen: seen(was, pendingConfig), want: gateWait("MachineConfigPending",
			"a machine config is staged or tried on c1-cp-1, which a change would wipe: whoever did that lets the trial end, or reboots it: ichor node reboot c1-cp-1")},
		"a scheduler before its API servers": {unit: unit("Scheduler", ""), seen: seen(was), want: gateWait("VersionSkew",
			"kube-scheduler of c1-cp-1 must not be newer than an API server: the API server of c1-cp-1 runs v1.35.2; upgrade that with an operation of its own")},
		"a scheduler, and an API server that nobody knows": {unit: unit("Scheduler", ""), seen: seen(was, servers, func(_ *kind.Observation, l *look) { l.pods = l.pods[:1] }), want: gateWait("VersionSkew",
			"kube-scheduler of c1-cp-1 must not be newer than an API server: no API server is known on c1-cp-2; upgrade that with an operation of its own")},
		"a scheduler after them": {unit: unit("Scheduler", ""), seen: seen(was, servers), want: call(apply)},
		"a scheduler that is off": {
			unit: unit("Scheduler", ""), seen: seen(was, servers, func(_ *kind.Observation, l *look) {
				delete(l.runs.Components, "kube-scheduler")
				l.settings[machineimage.Scheduler] = machineimage.Setting{Off: true}
			}), want: done,
		},
		"a scheduler that is not rendered": {
			unit: unit("Scheduler", ""), seen: seen(was, servers, func(_ *kind.Observation, l *look) { delete(l.runs.Components, "kube-scheduler") }),
			want: gateWait("MachineSettled", "c1-cp-1 does not render kube-scheduler"),
		},
		"told by somebody, and not there": {
			unit: unit("APIServer", ""), seen: seen(was, told(api, img(api, is))),
			want: gateWait("MachineSettled", "waiting on c1-cp-1 for the pod of kube-apiserver that Talos has rendered last"),
		},
		"applied":         {unit: unit("APIServer", apply), seen: seen(was), want: verify("waiting until what was applied runs")},
		"refused":         {unit: unit("APIServer", apply, failed), seen: seen(was), want: kind.Action{Verdict: kind.Fail, Message: "Applying failed: it broke"}},
		"not rendered":    {unit: unit("APIServer", verifying), seen: seen(was, func(_ *kind.Observation, l *look) { l.settings[api] = machineimage.Setting{Image: img(api, is)} }), want: kind.Action{Verdict: kind.Wait, Message: "waiting for Talos to render kube-apiserver"}},
		"set back":        {unit: unit("APIServer", verifying), seen: seen(was), want: kind.Action{Verdict: kind.Fail, RetryStep: apply, Message: "somebody has set the image of kube-apiserver to registry.k8s.io/kube-apiserver:v1.35.2 meanwhile"}},
		"the old pod":     {unit: unit("APIServer", verifying), seen: seen(was, told(api, img(api, is))), want: verify("waiting for the pod of kube-apiserver that Talos has rendered last")},
		"no pod":          {unit: unit("APIServer", verifying), seen: seen(is, func(_ *kind.Observation, l *look) { l.pods = nil }), want: verify("waiting for the pod of kube-apiserver on cp-1")},
		"another version": {unit: unit("APIServer", verifying), seen: seen(is, pod(api, "cp-1", func(p *kube.ComponentPod) { p.ConfigVersion = "0" })), want: verify("waiting for the pod of kube-apiserver that Talos has rendered last")},
		"it crashes": {
			unit: unit("APIServer", verifying), seen: seen(is, pod(api, "cp-1", func(p *kube.ComponentPod) { p.Ready, p.Trouble = false, "CrashLoopBackOff (exit code 1)" })),
			want: verify("waiting for kube-apiserver to be Ready: CrashLoopBackOff (exit code 1); why is in: talosctl -n 10.0.0.1 logs -k kube-system/kube-apiserver-cp-1"),
		},
		"it runs":             {unit: unit("APIServer", verifying), seen: seen(is), want: done},
		"silent meanwhile":    {unit: unit("APIServer", verifying), seen: seen(is, silent), want: kind.Action{Verdict: kind.Wait, Message: "waiting for the Talos API: no answer"}},
		"API away meanwhile":  {unit: unit("APIServer", verifying), seen: seen(is, func(_ *kind.Observation, l *look) { l.podsTrouble = "away" }), want: kind.Action{Verdict: kind.Wait, Message: "away"}},
		"pinned, there (F3)":  {unit: unit("APIServer", ""), seen: seen(is, told(api, "r/kube-apiserver@sha256:"+digest), pod(api, "cp-1", func(p *kube.ComponentPod) { p.Image, p.ConfigVersion = "r/kube-apiserver@sha256:"+digest, "2" })), want: done},
		"pinned, behind (F3)": {unit: unit("APIServer", ""), seen: seen(was, told(api, "r/kube-apiserver@sha256:"+digest)), want: call(apply)},
	}, executor.Next)
}

const digest = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func TestProxyConfig(t *testing.T) {
	proxy := func(setting machineimage.Setting) func(*kind.Observation, *look) {
		return func(_ *kind.Observation, l *look) { l.settings[machineimage.Proxy] = setting }
	}
	run(t, map[string]row{
		"behind":               {unit: unit("ProxyConfig", ""), seen: seen(was, servers), want: call(v1alpha1.ApplyingStep)},
		"there":                {unit: unit("ProxyConfig", ""), seen: seen(is), want: done},
		"off":                  {unit: unit("ProxyConfig", ""), seen: seen(was, servers, proxy(machineimage.Setting{Off: true})), want: done},
		"off, and written":     {unit: unit("ProxyConfig", ""), seen: seen(was, servers, proxy(machineimage.Setting{Off: true, Image: img(machineimage.Proxy, was)})), want: call(v1alpha1.ApplyingStep)},
		"left to Talos":        {unit: unit("ProxyConfig", ""), seen: seen(was, servers, proxy(machineimage.Setting{})), want: call(v1alpha1.ApplyingStep)},
		"applied":              {unit: unit("ProxyConfig", v1alpha1.VerifyingStep), seen: seen(is), want: done},
		"set back":             {unit: unit("ProxyConfig", v1alpha1.VerifyingStep), seen: seen(was), want: kind.Action{Verdict: kind.Fail, RetryStep: v1alpha1.ApplyingStep, Message: "somebody has set the image of kube-proxy to registry.k8s.io/kube-proxy:v1.35.2 meanwhile"}},
		"someone's trial":      {unit: unit("ProxyConfig", ""), seen: seen(was, servers, pendingConfig), want: gateWait("MachineConfigPending", pendingWords(unit("", "")))},
		"before an API server": {unit: unit("ProxyConfig", ""), seen: seen(was), want: gateWait("VersionSkew", "kube-proxy of c1-cp-1 must not be newer than an API server: the API server of c1-cp-1 runs v1.35.2; upgrade that with an operation of its own")},
	}, executor.Next)
}

func TestKubelets(t *testing.T) {
	const stage, apply, verifying = "Kubelets", v1alpha1.ApplyingStep, v1alpha1.VerifyingStep
	kubelet := machineimage.Kubelet
	node := func(change func(*kube.Node)) func(*kind.Observation, *look) {
		return func(o *kind.Observation, _ *look) {
			n := *o.Node
			change(&n)
			o.Node = &n
		}
	}
	mine := node(func(n *kube.Node) { n.Unschedulable, n.CordonedBy = true, "default/op-1" })
	cordoned := node(func(n *kube.Node) { n.Unschedulable = true })
	patch := func(s *kind.Scope) { s.Target.KubernetesVersion = "v1.35.4" }
	serversAtPatch := func(_ *kind.Observation, l *look) {
		for i := range l.pods {
			l.pods[i].Image = img(machineimage.APIServer, "v1.35.4")
		}
	}
	run(t, map[string]row{
		"a minor":                     {unit: unit(stage, ""), seen: seen(was, servers), want: call(v1alpha1.DrainingStep)},
		"a minor, with replicas":      {unit: unit(stage, ""), seen: seen(was, servers, func(o *kind.Observation, _ *look) { o.Storage = storage.State{Replicas: 2} }), want: call(v1alpha1.EvacuatingStep)},
		"a minor on one machine (D7)": {unit: unit(stage, ""), seen: seen(was, servers), want: call(apply), as: func(s *kind.Scope) { s.Machines = 1 }},
		"a patch level":               {unit: unit(stage, ""), seen: seen(was, serversAtPatch), want: call(apply), as: patch},
		"before its API servers":      {unit: unit(stage, ""), seen: seen(was), want: gateWait("VersionSkew", "kubelet of c1-cp-1 must not be newer than an API server: the API server of c1-cp-1 runs v1.35.2; upgrade that with an operation of its own")},
		"far behind":                  {unit: unit(stage, ""), seen: seen("v1.33.1", servers), want: call(v1alpha1.DrainingStep)},
		"a downgrade":                 {unit: unit(stage, ""), seen: seen("v1.36.3", servers), want: kind.Action{Verdict: kind.Fail, Message: "kubelet: v1.36.1 is older than the running v1.36.3: a downgrade is no upgrade"}},
		"someone's trial":             {unit: unit(stage, ""), seen: seen(was, servers, pendingConfig), want: gateWait("MachineConfigPending", pendingWords(unit("", "")))},
		"no Node":                     {unit: unit(stage, ""), seen: seen(was, servers, func(o *kind.Observation, _ *look) { o.Node = nil }), want: gateWait("MachineSettled", "c1-cp-1 has no Node")},
		"there":                       {unit: unit(stage, ""), seen: seen(is), want: done},
		"there, and still cordoned":   {unit: unit(stage, ""), seen: seen(is, mine), want: call(v1alpha1.UncordoningStep)},
		"there, cordoned by others":   {unit: unit(stage, ""), seen: seen(is, cordoned), want: done},
		"pinned by digest (F3)":       {unit: unit(stage, ""), seen: seen(is, told(kubelet, "r/kubelet@sha256:"+digest)), want: done},
		"evacuated":                   {unit: unit(stage, v1alpha1.EvacuatingStep), seen: seen(was, servers), want: call(v1alpha1.DrainingStep)},
		"drained":                     {unit: unit(stage, v1alpha1.DrainingStep), seen: seen(was, servers, mine), want: call(apply)},
		"drained, and opened since":   {unit: unit(stage, v1alpha1.DrainingStep), seen: seen(was, servers), want: call(v1alpha1.DrainingStep)},
		"not drained":                 {unit: unit(stage, v1alpha1.DrainingStep, failed), seen: seen(was, servers), want: kind.Action{Verdict: kind.Fail, Message: "Draining failed: it broke"}},
		"applied":                     {unit: unit(stage, apply), seen: seen(was, servers, mine), want: verify("waiting until what was applied runs")},
		"not told yet": {
			unit: unit(stage, verifying), seen: seen(was, servers, mine, func(_ *kind.Observation, l *look) {
				l.settings[kubelet] = machineimage.Setting{Image: img(kubelet, is)}
			}),
			want: kind.Action{Verdict: kind.Wait, Message: "waiting for Talos to render kubelet"},
		},
		"told, and not there": {
			unit: unit(stage, verifying), seen: seen(was, servers, mine, told(kubelet, img(kubelet, is))),
			want: verify("waiting for the Node to tell of kubelet v1.36.1; it tells of v1.35.2. Why is in: talosctl -n 10.0.0.1 logs kubelet"),
		},
		"there, not ready": {
			unit: unit(stage, verifying), seen: seen(is, mine, func(o *kind.Observation, _ *look) { n := *o.Node; n.Ready = false; o.Node = &n }),
			want: verify("waiting for the Node to be Ready; why it is not is in: talosctl -n 10.0.0.1 logs kubelet"),
		},
		"there, to be opened": {unit: unit(stage, verifying), seen: seen(is, mine), want: call(v1alpha1.UncordoningStep)},
		"opened":              {unit: unit(stage, v1alpha1.UncordoningStep), seen: seen(is), want: done},
		"taken back":          {unit: unit(stage, v1alpha1.UncordoningStep), seen: seen(was, servers), want: kind.Action{Verdict: kind.Park}},
		"no Kubernetes API":   {unit: unit(stage, verifying), seen: seen(is, func(o *kind.Observation, _ *look) { o.NodeTrouble = "no answer" }), want: kind.Action{Verdict: kind.Wait, Message: "the Kubernetes API of the cluster cannot be read: no answer"}},
	}, executor.Next)
}

func TestPulling(t *testing.T) {
	run(t, map[string]row{
		"something to pull": {unit: unit("PrePull", ""), seen: seen(was), want: call(v1alpha1.PullingStep)},
		"nothing to pull":   {unit: unit("PrePull", ""), seen: seen(is), want: done},
		"a kubelet only":    {unit: unit("PrePull", ""), seen: seen(is, told(machineimage.Kubelet, img(machineimage.Kubelet, was))), want: call(v1alpha1.PullingStep)},
		"no answer":         {unit: unit("PrePull", ""), seen: seen(was, silent), want: gateWait("TargetReachable", "machine c1-cp-1 does not answer: no answer")},
		"pulled":            {unit: unit("PrePull", v1alpha1.PullingStep), want: done},
		"not there (F9)":    {unit: unit("PrePull", v1alpha1.PullingStep, failed), want: kind.Action{Verdict: kind.Fail, Message: "Pulling failed: it broke"}},
	}, executor.Next)
}

// The stage is the whole cluster's: nothing is looked at, and the call answers all.
func TestTheSnapshotStage(t *testing.T) {
	whole := func(step v1alpha1.OperationStep, change ...func(*v1alpha1.UnitStatus)) kind.Unit {
		u := unit("Snapshot", step, change...)
		u.Machine, u.Status.Name = nil, "Snapshot"
		return u
	}
	fail, park := kind.Action{Verdict: kind.Fail, Message: "Snapshotting failed: it broke"}, kind.Action{Verdict: kind.Park}
	for name, row := range map[string]struct {
		unit         kind.Unit
		next, settle kind.Action
	}{
		"not begun": {whole(""), call(v1alpha1.SnapshottingStep), park},
		"stored":    {whole(v1alpha1.SnapshottingStep), done, done},
		"failed":    {whole(v1alpha1.SnapshottingStep, failed), fail, park},
		"given up":  {whole(v1alpha1.SnapshottingStep, gaveUp), fail, park},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(executor.Observe(t.Context(), scope(), row.unit)).To(Equal(kind.Observation{}))
			g.Expect(executor.Next(scope(), row.unit, kind.Observation{})).To(Equal(row.next))
			g.Expect(executor.Settle(scope(), row.unit, kind.Observation{})).To(Equal(row.settle))
			g.Expect(executor.Undo(t.Context(), scope(), row.unit, v1alpha1.SnapshottingStep, errors.New("x"))).To(Succeed())
		})
	}
}

// asked is a storage that remembers the names.
type asked struct{ names []string }

// Take implements kind.Snapshots.
func (a *asked) Take(_ context.Context, _ target.Target, _ guard.Func, name string) error {
	a.names = append(a.names, name)
	return fmt.Errorf("%w: no bucket", kind.ErrNotStored)
}

func TestOneSnapshotForEachOperation(t *testing.T) {
	g := NewWithT(t)
	storage := &asked{}
	e := New(nil, nil, storage)
	g.Expect(e.StoresSnapshots).To(BeTrue())
	g.Expect(executor.StoresSnapshots).To(BeFalse())
	s := scope(func(s *kind.Scope) { s.OperationID = "11111111-2222" })
	_, err := e.Do(t.Context(), s, kind.Unit{}, v1alpha1.SnapshottingStep)
	g.Expect(e.Classify(err)).To(BeEquivalentTo("Permanent"), "trying once more does not help")
	_, _ = e.Do(t.Context(), s, kind.Unit{}, v1alpha1.SnapshottingStep)
	g.Expect(storage.names).To(Equal([]string{"op-1-11111111", "op-1-11111111"}), "whoever asks again asks for the same")
}

func TestWholeStages(t *testing.T) {
	whole := func(stage string, step v1alpha1.OperationStep, change ...func(*v1alpha1.UnitStatus)) kind.Unit {
		u := unit(stage, step, change...)
		u.Machine, u.Status.Name = nil, stage
		return u
	}
	saw := func(trouble string, unready ...string) kind.Observation {
		return kind.Observation{Own: clusterLook{trouble: trouble, unready: unready}}
	}
	found := func(u *v1alpha1.UnitStatus) { u.Outcome.Message = "manifests: 3 unchanged" }
	run(t, map[string]row{
		"check":                 {unit: whole("Check", ""), seen: saw(""), want: call(v1alpha1.CheckingStep)},
		"check, a Node is away": {unit: whole("Check", ""), seen: saw("", "Node w-1 of machine c1-w-1"), want: gateWait("NodesReady", "1 not ready: Node w-1 of machine c1-w-1. A worker that is to be left out is held with: ichor machine hold")},
		"check, overridden":     {unit: whole("Check", ""), seen: saw("", "Node w-1"), want: call(v1alpha1.CheckingStep), as: func(s *kind.Scope) { s.Spec.Overrides = []v1alpha1.GateOverride{{Gate: "NodesReady"}} }},
		"check, no API":         {unit: whole("Check", ""), seen: saw("away"), want: gateWait("TargetReachable", "away")},
		"checked":               {unit: whole("Check", v1alpha1.CheckingStep, found), seen: saw(""), want: kind.Action{Verdict: kind.Done, Message: "manifests: 3 unchanged"}},
		"found something":       {unit: whole("Check", v1alpha1.CheckingStep, failed), seen: saw(""), want: kind.Action{Verdict: kind.Fail, Message: "Checking failed: it broke"}},
		"manifests":             {unit: whole("Manifests", ""), seen: saw(""), want: call(v1alpha1.SyncingStep)},
		"manifests, no API":     {unit: whole("Manifests", ""), seen: saw("away"), want: gateWait("TargetReachable", "away")},
		"applied":               {unit: whole("Manifests", v1alpha1.SyncingStep), seen: saw(""), want: kind.Action{Verdict: kind.Wait, Step: v1alpha1.RollingOutStep, Message: "waiting until the workloads of the manifests run"}},
		"not applied":           {unit: whole("Manifests", v1alpha1.SyncingStep, failed), seen: saw(""), want: kind.Action{Verdict: kind.Fail, Message: "Syncing failed: it broke"}},
		"rolling out":           {unit: whole("Manifests", v1alpha1.RollingOutStep), seen: saw("", "DaemonSet kube-system/kube-proxy: 1 of 3 pods are new", "x"), want: kind.Action{Verdict: kind.Wait, Message: "waiting for DaemonSet kube-system/kube-proxy: 1 of 3 pods are new (and 1 more)"}},
		"rolling out, unseen":   {unit: whole("Manifests", v1alpha1.RollingOutStep), seen: saw("away"), want: kind.Action{Verdict: kind.Wait, Message: "away"}},
		"rolled out":            {unit: whole("Manifests", v1alpha1.RollingOutStep), seen: saw(""), want: done},
	}, executor.Next)
	park := kind.Action{Verdict: kind.Park}
	run(t, map[string]row{
		"a check":   {unit: whole("Check", v1alpha1.CheckingStep), seen: saw(""), want: park},
		"a rollout": {unit: whole("Manifests", v1alpha1.RollingOutStep), seen: saw("", "x"), want: park},
		"a pull":    {unit: unit("PrePull", v1alpha1.PullingStep), seen: seen(was), want: park},
		"not begun": {unit: unit("APIServer", ""), seen: seen(was), want: park},
		"refused":   {unit: unit("APIServer", v1alpha1.ApplyingStep, failed), seen: seen(was), want: park},
		"given up":  {unit: unit("APIServer", v1alpha1.VerifyingStep, gaveUp), seen: seen(was), want: park},
		"applied":   {unit: unit("APIServer", v1alpha1.ApplyingStep), seen: seen(was), want: verify("waiting until what was applied runs")},
		"there":     {unit: unit("APIServer", v1alpha1.VerifyingStep), seen: seen(is), want: done},
		"a drain":   {unit: unit("Kubelets", v1alpha1.DrainingStep), seen: seen(was, func(o *kind.Observation, _ *look) { o.Node.CordonedBy = "default/op-1" }), want: call(v1alpha1.UncordoningStep)},
		"a kubelet": {unit: unit("Kubelets", v1alpha1.ApplyingStep), seen: seen(was), want: verify("waiting until what was applied runs")},
		"a kubelet, given up": {
			unit: unit("Kubelets", v1alpha1.VerifyingStep, gaveUp), seen: seen(was, func(o *kind.Observation, _ *look) { o.Node.CordonedBy = "default/op-1" }),
			want: call(v1alpha1.UncordoningStep),
		},
	}, executor.Settle)
}
