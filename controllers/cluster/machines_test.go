// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newClient(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	s := runtime.NewScheme()
	g := NewWithT(t)
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, v1alpha1.AddToScheme} {
		g.Expect(add(s)).To(Succeed())
	}
	return fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).
		WithIndex(&v1alpha1.TalosCluster{}, credentialSecretsField, credentialSecrets).
		WithStatusSubresource(&v1alpha1.TalosCluster{}, &v1alpha1.TalosMachine{}).Build()
}

// world is a Reconciler on a fake API with one TalosCluster, and its facts.
func world(t *testing.T, machines ...v1alpha1.TalosMachine) (*Reconciler, *targets.Facts) {
	t.Helper()
	cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1", UID: "u1", Annotations: map[string]string{
		v1alpha1.OwnerIDAnnotation: "this-hub",
	}}}
	objects := []client.Object{cluster}
	for i := range machines {
		objects = append(objects, &machines[i])
	}
	c := newClient(t, objects...)
	facts, err := targets.Load(t.Context(), c, client.ObjectKeyFromObject(cluster))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return &Reconciler{Options: Options{Client: c, APIReader: c, Clock: clocktesting.NewFakeClock(now)}}, &facts
}

// answering is a machine that works.
func answering(address string, role v1alpha1.MachineRole, node, uuid string) found {
	f := found{address: address, role: role, facts: talos.Machine{
		Version: "v1.13.9", BootID: "b1", UUID: uuid, NodeName: node, Stage: "running", Ready: true, SchematicID: "s1", Platform: "metal",
	}}
	if role == "ControlPlane" {
		f.etcd = &talos.Etcd{MemberID: 0xa1, Leader: 0xa1, Members: []talos.EtcdMember{{ID: 0xa1, Hostname: node, Started: true}}}
	}
	return f
}

func seeing(machines ...found) probe {
	seen := probe{kubernetesVersion: "v1.35.2", machines: map[string]found{}}
	for _, machine := range machines {
		seen.machines[machine.address] = machine
		seen.nodes = append(seen.nodes, kube.Node{Name: machine.facts.NodeName, Ready: true, KubeletVersion: "v1.35.2"})
	}
	return seen
}

func names(t *testing.T, r *Reconciler) []string {
	t.Helper()
	list := &v1alpha1.TalosMachineList{}
	NewWithT(t).Expect(r.Client.List(t.Context(), list)).To(Succeed())
	var all []string
	for _, machine := range list.Items {
		all = append(all, machine.Name)
	}
	return all
}

func TestDiscover(t *testing.T) {
	g := NewWithT(t)
	r, facts := world(t)
	g.Expect(r.discover(t.Context(), facts, seeing(
		answering("10.0.0.1", "ControlPlane", "cp-1", "u1"), answering("10.0.1.1", "Worker", "W-1.example.org", "u2"),
	))).To(Succeed())
	g.Expect(names(t, r)).To(Equal([]string{"c1-cp-1", "c1-w-1-example-org"}))
	g.Expect(facts.Machines).To(HaveLen(2))

	made := &v1alpha1.TalosMachine{}
	g.Expect(r.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "c1-cp-1"}, made)).To(Succeed())
	g.Expect(made.Spec).To(Equal(v1alpha1.TalosMachineSpec{ClusterName: "c1", Role: "ControlPlane", Address: "10.0.0.1", UUID: "u1", Approval: "Approved"}))
	g.Expect(made.Labels).To(Equal(map[string]string{"cluster.x-k8s.io/cluster-name": "c1"}))
	g.Expect(made.OwnerReferences).To(Equal([]metav1.OwnerReference{facts.Owner()}))

	g.Expect(r.discover(t.Context(), facts, seeing(answering("10.0.0.1", "ControlPlane", "cp-1", "u1")))).To(Succeed())
	g.Expect(names(t, r)).To(HaveLen(2), "what is recorded is found once")
}

// A name is not a machine: that of another cluster keeps it, and ours gets some of its UUID. Our own, which the cache does not have yet,
// is taken as it is.
func TestDiscoverWhenTheNameIsTaken(t *testing.T) {
	const uuid = "ABCDEFGH"
	there := func(name, cluster, uuid string) *v1alpha1.TalosMachine {
		m := recorded(name, "w-1", "Worker", "10.0.1.7", uuid)
		m.Labels["cluster.x-k8s.io/cluster-name"], m.Spec.ClusterName = cluster, cluster
		m.Spec.Approval = "Pending"
		return &m
	}
	for name, row := range map[string]struct {
		there    []*v1alpha1.TalosMachine
		machine  string
		approval v1alpha1.Approval
		err      string
	}{
		"by nobody":                        {nil, "c1-w-1", "Approved", ""},
		"by another cluster":               {[]*v1alpha1.TalosMachine{there("c1-w-1", "c1-w", "u9")}, "c1-w-1-abcde", "Approved", ""},
		"by another cluster with its UUID": {[]*v1alpha1.TalosMachine{there("c1-w-1", "c1-w", uuid)}, "c1-w-1-abcde", "Approved", ""},
		"by another machine of ours":       {[]*v1alpha1.TalosMachine{there("c1-w-1", "c1", "u9")}, "c1-w-1-abcde", "Approved", ""},
		"by itself":                        {[]*v1alpha1.TalosMachine{there("c1-w-1", "c1", uuid)}, "c1-w-1", "Pending", ""},
		"by another, and then by itself":   {[]*v1alpha1.TalosMachine{there("c1-w-1", "c1-w", "u9"), there("c1-w-1-abcde", "c1", uuid)}, "c1-w-1-abcde", "Pending", ""},
		"both of its names": {
			[]*v1alpha1.TalosMachine{there("c1-w-1", "c1-w", "u9"), there("c1-w-1-abcde", "c1-w", "u8")}, "", "", `no name is free for the machine with UUID "ABCDEFGH"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r, facts := world(t)
			for _, m := range row.there {
				g.Expect(r.Client.Create(t.Context(), m)).To(Succeed()) // The facts are older, as a cache is.
			}
			err := r.discover(t.Context(), facts, seeing(answering("10.0.1.1", "Worker", "w-1", uuid)))
			if row.err != "" {
				g.Expect(err).To(MatchError(HavePrefix(row.err)))
				g.Expect(facts.Machines).To(BeEmpty())
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(facts.Machines).To(HaveLen(1))
			made := facts.Machines[0]
			g.Expect(made.Name).To(Equal(row.machine))
			g.Expect(made.Spec.ClusterName).To(Equal("c1"))
			g.Expect(made.Spec.UUID).To(Equal(uuid))
			g.Expect(made.Spec.Approval).To(Equal(row.approval), "what is there already is not changed")
			for _, m := range row.there {
				after := &v1alpha1.TalosMachine{}
				g.Expect(r.Client.Get(t.Context(), client.ObjectKeyFromObject(m), after)).To(Succeed())
				g.Expect(after.Spec).To(Equal(m.Spec))
			}
		})
	}
}

// What is in the way is read past the cache, and what cannot be read is not guessed.
func TestDiscoverReadsUncached(t *testing.T) {
	broken := errors.New("no answer")
	for name, row := range map[string]struct {
		funcs interceptor.Funcs
		err   string
	}{
		"the cache does not have it": {interceptor.Funcs{}, ""},
		"it cannot be read": {interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return broken
		}}, "reading TalosMachine default/c1-w-1: no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r, facts := world(t)
			ours := recorded("c1-w-1", "w-1", "Worker", "10.0.1.1", "u1")
			g.Expect(r.Client.Create(t.Context(), &ours)).To(Succeed())
			whole := r.Client.(client.WithWatch)
			r.APIReader = interceptor.NewClient(whole, row.funcs)
			r.Client = interceptor.NewClient(whole, interceptor.Funcs{Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
				return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("talosmachines").GroupResource(), key.Name)
			}})
			err := r.discover(t.Context(), facts, seeing(answering("10.0.1.1", "Worker", "w-1", "u1")))
			if row.err != "" {
				g.Expect(err).To(MatchError(row.err))
				g.Expect(err).To(MatchError(broken))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(facts.Machines).To(HaveLen(1))
			g.Expect(facts.Machines[0].UID).To(Equal(ours.UID))
		})
	}
	t.Run("another failure", func(t *testing.T) {
		g := NewWithT(t)
		r, facts := world(t)
		r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return broken
		}})
		err := r.discover(t.Context(), facts, seeing(answering("10.0.1.1", "Worker", "w-1", "u1")))
		g.Expect(err).To(MatchError("creating TalosMachine default/c1-w-1: no answer"))
		g.Expect(facts.Machines).To(BeEmpty())
	})
}

// After initial approval a machine that appears waits for a person.
func TestDiscoverAfterInitialApproval(t *testing.T) {
	g := NewWithT(t)
	r, facts := world(t)
	facts.Cluster.Annotations = map[string]string{"ichor.maesh.dev/members-approved-at": "2026-01-01T00:00:00Z"}
	g.Expect(r.discover(t.Context(), facts, seeing(answering("10.0.1.9", "Worker", "w-9", "u9")))).To(Succeed())
	g.Expect(facts.Machines[0].Spec.Approval).To(BeEquivalentTo("Pending"))
}

func TestDiscoverLeavesOut(t *testing.T) {
	machine := recorded("c1-w-1", "w-1", "Worker", "10.0.1.1", "u1")
	for name, seen := range map[string]found{
		"what does not answer":                      {address: "10.0.1.2", trouble: "no answer"},
		"what does not tell who it is":              answering("10.0.1.2", "Worker", "w-2", ""),
		"what has no name yet":                      answering("10.0.1.2", "Worker", "", "u2"),
		"a machine that moved (B7)":                 answering("10.0.1.2", "Worker", "renamed", "u1"),
		"a stranger at a recorded address (B8)":     answering("10.0.1.1", "Worker", "w-2", "u2"),
		"the recorded machine, by another spelling": answering("10.0.1.1", "Worker", "W-1", "u1"),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r, facts := world(t, machine)
			g.Expect(r.discover(t.Context(), facts, seeing(seen))).To(Succeed())
			g.Expect(names(t, r)).To(Equal([]string{"c1-w-1"}))
		})
	}
}

// Machines of the same name are told apart by five characters of their UUID.
func TestMachineName(t *testing.T) {
	facts := targets.Facts{Cluster: &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}, Machines: []v1alpha1.TalosMachine{recorded("c1-w-1", "w-1", "Worker", "10.0.1.1", "u1")}}
	for want, machine := range map[string]talos.Machine{
		"c1-w-2":         {NodeName: "w-2", UUID: "ABCDEFGH"},
		"c1-w-1-abcde":   {NodeName: "w-1", UUID: "ABCDEFGH"},
		"c1-w-1-ab":      {NodeName: "W-1", UUID: "AB"},
		"c1-w-1-example": {NodeName: "W-1.Example", UUID: "x"},
		"c1-xyzxy":       {NodeName: "_", UUID: "XYZXYZ"},
	} {
		NewWithT(t).Expect(machineName(facts, machine)).To(Equal(want))
	}
}

func condition(machine *v1alpha1.TalosMachine, kind string) metav1.Condition {
	found := meta.FindStatusCondition(machine.Status.Conditions, kind)
	if found == nil {
		return metav1.Condition{}
	}
	return metav1.Condition{Status: found.Status, Reason: found.Reason, Message: found.Message, ObservedGeneration: found.ObservedGeneration}
}

func TestDescribe(t *testing.T) {
	cond := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Status: status, Reason: reason, Message: message, ObservedGeneration: 3}
	}
	confirmed, unobserved := cond("True", "Confirmed", ""), cond("Unknown", "NotYetObserved", "")
	notReady := func(message string) metav1.Condition { return cond("False", "NotReady", message) }
	for name, row := range map[string]struct {
		change          func(*probe, *found)
		ready, identity metav1.Condition
	}{
		"works":            {func(*probe, *found) {}, cond("True", "Ready", ""), confirmed},
		"does not answer":  {func(_ *probe, f *found) { f.trouble = "no answer" }, cond("Unknown", "NotReachable", "no answer"), unobserved},
		"was not asked":    {func(_ *probe, f *found) { f.address = "10.9.9.9" }, cond("Unknown", "NotReachable", ""), unobserved},
		"is another (B10)": {func(_ *probe, f *found) { f.facts.UUID = "u2" }, cond("Unknown", "NotReachable", `a machine with UUID "u2" answers at 10.0.0.1`), cond("False", "Mismatch", `a machine with UUID "u2" answers at 10.0.0.1`)},
		"boots":            {func(_ *probe, f *found) { f.facts.Stage = "booting" }, notReady(`the machine is in stage "booting"`), confirmed},
		"is unwell": {func(_ *probe, f *found) {
			f.facts.Ready, f.facts.Unmet = false, []string{"time: not in sync", "services: etcd"}
		}, notReady("not ready: time: not in sync, services: etcd"), confirmed},
		"no Kubernetes":     {func(p *probe, _ *found) { p.kubeTrouble = "no answer" }, notReady("the Kubernetes API cannot be read: no answer"), confirmed},
		"no Node":           {func(p *probe, _ *found) { p.nodes = nil }, notReady(`there is no Node "cp-1"`), confirmed},
		"Node not Ready":    {func(p *probe, _ *found) { p.nodes[0].Ready = false }, notReady("the Node is not Ready"), confirmed},
		"no etcd (B17)":     {func(_ *probe, f *found) { f.etcd, f.etcdTrouble = nil, "no answer" }, notReady("etcd does not answer: no answer"), confirmed},
		"is learning (B14)": {func(_ *probe, f *found) { f.etcd.Learner = true }, notReady("the etcd member is a learner"), confirmed},
		"Node in capitals":  {func(p *probe, _ *found) { p.nodes[0].Name = "CP-1" }, cond("True", "Ready", ""), confirmed},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			machine := recorded("c1-cp-1", "cp-1", "ControlPlane", "10.0.0.1", "u1")
			f := answering("10.0.0.1", "ControlPlane", "cp-1", "u1")
			seen := seeing(f)
			row.change(&seen, &f)
			seen.machines = map[string]found{f.address: f}
			describe(&machine, seen)
			g.Expect(condition(&machine, "Ready")).To(Equal(row.ready))
			g.Expect(condition(&machine, "IdentityConfirmed")).To(Equal(row.identity))
			g.Expect(machine.Status.ObservedGeneration).To(BeEquivalentTo(3))
		})
	}
}

func TestDescribeKeepsWhatWasSeen(t *testing.T) {
	g := NewWithT(t)
	machine := recorded("c1-cp-1", "", "ControlPlane", "10.0.0.1", "u1")
	f := answering("10.0.0.1", "ControlPlane", "cp-1", "u1")
	f.facts.SecureBoot = true
	describe(&machine, seeing(f))
	want := v1alpha1.TalosMachineStatus{
		NodeName: "cp-1", TalosVersion: "v1.13.9", BootID: "b1", SchematicID: "s1", Platform: "metal", SecureBoot: "Enabled",
		EtcdMemberID: "a1", KubeletVersion: "v1.35.2", ObservedGeneration: 3, Conditions: machine.Status.Conditions,
	}
	g.Expect(machine.Status).To(Equal(want))

	describe(&machine, probe{})
	want.Conditions = machine.Status.Conditions
	g.Expect(machine.Status).To(Equal(want))
	g.Expect(condition(&machine, "IdentityConfirmed").Reason).To(Equal("Confirmed"), "silence takes nobody's identity away")
}

func TestRecordWritesWhatChanged(t *testing.T) {
	g := NewWithT(t)
	r, facts := world(t, recorded("c1-w-1", "", "Worker", "10.0.1.1", "u1"), recorded("c1-w-2", "", "Worker", "10.0.1.2", "u2"))
	writes := 0
	r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			writes++
			return c.SubResource(sub).Patch(ctx, object, patch, options...)
		},
	})
	both := []found{answering("10.0.1.1", "Worker", "w-1", "u1"), answering("10.0.1.2", "Worker", "w-2", "u2")}
	g.Expect(r.record(t.Context(), facts, seeing(both...))).To(Succeed())
	g.Expect(writes).To(Equal(2))
	g.Expect(r.record(t.Context(), facts, seeing(both...))).To(Succeed())
	g.Expect(writes).To(Equal(2), "there is no heartbeat")
	both[1].facts.BootID = "b2"
	g.Expect(r.record(t.Context(), facts, seeing(both...))).To(Succeed())
	g.Expect(writes).To(Equal(3))
}

func TestUnmatched(t *testing.T) {
	machines := []v1alpha1.TalosMachine{recorded("c1-cp-1", "cp-1", "ControlPlane", "10.0.0.1", "u1")}
	machines[0].Status.EtcdMemberID = "a1"
	for name, row := range map[string]struct {
		change func(*probe, *found)
		want   string
	}{
		"all have one":          {func(*probe, *found) {}, ""},
		"Node in capitals (B7)": {func(p *probe, _ *found) { p.nodes[0].Name = "CP-1" }, ""},
		"a Node":                {func(p *probe, _ *found) { p.nodes = append(p.nodes, kube.Node{Name: "w-9"}) }, `Node "w-9" has no machine`},
		"a recorded machine is silent": {func(_ *probe, f *found) {
			*f = found{address: f.address, role: f.role, trouble: "no answer"}
		}, ""},
		"an unknown address is silent": {func(p *probe, _ *found) {
			p.machines["10.0.1.9"] = found{address: "10.0.1.9", trouble: "no answer"}
		}, "the machine at 10.0.1.9 is not known and does not answer: no answer"},
		"a Node that runs something else": {func(p *probe, _ *found) {
			p.nodes = append(p.nodes, kube.Node{Name: "nas", OSImage: "Debian GNU/Linux 13"})
		}, ""},
		"a machine that is nowhere but at the endpoint (A9)": {func(p *probe, _ *found) { p.unaddressed = []string{"cp-9"} }, `machine "cp-9" has no address of its own: all that it tells are shared, or of one link only`},
		"a member": {func(_ *probe, f *found) {
			f.etcd.Members = append(f.etcd.Members, talos.EtcdMember{ID: 0xb2, Hostname: "cp-2"})
		}, `etcd member "cp-2" (b2) has no machine`},
	} {
		t.Run(name, func(t *testing.T) {
			f := answering("10.0.0.1", "ControlPlane", "cp-1", "u1")
			seen := seeing(f)
			row.change(&seen, &f)
			seen.machines[f.address] = f
			NewWithT(t).Expect(unmatched(targets.Facts{Machines: machines}, seen)).To(Equal(row.want))
		})
	}
}
