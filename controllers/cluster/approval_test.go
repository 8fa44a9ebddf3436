// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/observe"
	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/kube"
)

var c1 = types.NamespacedName{Namespace: "default", Name: "c1"}

const approvedAt = "ichor.maesh.dev/members-approved-at"

// Case A17: initial approval ends with a look at a whole cluster; nothing that was seen is not that.
func TestCaseA17EndOfInitialApproval(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*probe)
		ends   bool
	}{
		"everything matches": {func(*probe) {}, true},
		"no kubeconfig":      {func(p *probe) { p.kubeconfig.unusable = true }, false},
		"no talosconfig":     {func(p *probe) { p.talosconfig.unusable = true }, false},
		"two machines of one UUID (B8)": {func(p *probe) {
			clone := answering("10.0.1.2", "Worker", "w-2", "u2")
			clone.facts.BootID = "b2"
			p.machines["10.0.1.2"] = clone
		}, false},
		"a Node that runs something else": {func(p *probe) { p.nodes = append(p.nodes, kube.Node{Name: "nas", OSImage: "Debian"}) }, true},
		"no Kubernetes":                   {func(p *probe) { p.kubeTrouble = "no answer" }, false},
		"no Talos":                        {func(p *probe) { p.talosTrouble = "no answer" }, false},
		"no Nodes":                        {func(p *probe) { p.nodes = nil }, false},
		"no machines":                     {func(p *probe) { p.machines = nil }, false},
		"a recorded machine is silent":    {func(p *probe) { silence(p, "10.0.1.1") }, false},
		"a control plane is silent":       {func(p *probe) { silence(p, "10.0.0.1") }, false},
		"an unknown address is silent":    {func(p *probe) { silence(p, "10.0.1.9") }, false},
		"a control plane without etcd": {func(p *probe) {
			f := p.machines["10.0.0.1"]
			f.etcd = nil
			p.machines["10.0.0.1"] = f
		}, false},
		"no control plane": {func(p *probe) { delete(p.machines, "10.0.0.1") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r, facts := world(t)
			whole := seeing(answering("10.0.0.1", "ControlPlane", "cp-1", "u1"), answering("10.0.1.1", "Worker", "w-1", "u2"))
			g.Expect(r.discover(t.Context(), facts, whole)).To(Succeed())
			g.Expect(r.record(t.Context(), facts, whole)).To(Succeed())
			row.change(&whole)
			g.Expect(r.endInitialApproval(t.Context(), facts, whole)).To(Succeed())

			cluster := &v1alpha1.TalosCluster{}
			g.Expect(r.Client.Get(t.Context(), c1, cluster)).To(Succeed())
			g.Expect(cluster.Annotations).To(Equal(facts.Cluster.Annotations))
			if row.ends {
				g.Expect(cluster.Annotations).To(HaveKeyWithValue(approvedAt, "2026-01-02T03:04:05Z"))
			} else {
				g.Expect(cluster.Annotations).NotTo(HaveKey(approvedAt))
			}
		})
	}
}

func TestInitialApprovalEndsOnce(t *testing.T) {
	g := NewWithT(t)
	r, facts := world(t)
	facts.Cluster.Annotations = map[string]string{approvedAt: "2025-01-01T00:00:00Z"}
	g.Expect(r.discoverAndRecord(t.Context(), facts, seeing(answering("10.0.0.1", "ControlPlane", "cp-1", "u1")))).To(Succeed())
	g.Expect(facts.Cluster.Annotations).To(HaveKeyWithValue(approvedAt, "2025-01-01T00:00:00Z"))
}

func TestClusterOf(t *testing.T) {
	g := NewWithT(t)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x", Labels: map[string]string{"cluster.x-k8s.io/cluster-name": "c1"}}}
	g.Expect(clusterOf(t.Context(), lease)).To(Equal([]reconcile.Request{{NamespacedName: c1}}))
	lease.Labels = nil
	g.Expect(clusterOf(t.Context(), lease)).To(BeEmpty())
}

// A Secret is that of every cluster that takes a credential from it, whichever cluster its label names.
func TestCaseA11LookAgainWithSecret(t *testing.T) {
	g := NewWithT(t)
	r, _ := world(t)
	r.observer = observe.New(t.Context(), r.Clock, Probes, func(types.NamespacedName) {})
	for name, access := range map[string]*v1alpha1.AccessSpec{
		"c2": {KubeconfigSecretName: "fleet"}, "c3": {TalosconfigSecretName: "fleet"}, "c4": nil,
	} {
		g.Expect(r.Client.Create(t.Context(), &v1alpha1.TalosCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: v1alpha1.TalosClusterSpec{Access: access},
		})).To(Succeed())
	}
	request := func(name string) reconcile.Request {
		return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: name}}
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "fleet", Labels: map[string]string{"cluster.x-k8s.io/cluster-name": "c2"}}}
	g.Expect(r.lookAgainWithSecret(t.Context(), secret)).To(ConsistOf(request("c2"), request("c3")))
	secret.Name, secret.Labels = "c4-talosconfig", nil
	g.Expect(r.lookAgainWithSecret(t.Context(), secret)).To(ConsistOf(request("c4")))
}

func TestLockHolder(t *testing.T) {
	g := NewWithT(t)
	r, _ := world(t)
	holder, err := r.lockHolder(t.Context(), c1)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(holder).To(BeEmpty())
	g.Expect(r.Client.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1-ichor-lock"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("ichor-controller/op/default/op-1")},
	})).To(Succeed())
	holder, err = r.lockHolder(t.Context(), c1)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(holder).To(Equal("ichor-controller/op/default/op-1"))
}

// reads counts how often Secrets are read, which every probe begins with.
type reads struct {
	client.Reader
	count chan struct{}
}

func (r reads) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if strings.HasSuffix(key.Name, "-talosconfig") {
		r.count <- struct{}{}
	}
	return r.Reader.Get(ctx, key, object, options...)
}

// A target that nothing happens to is looked at less and less often, but not while an operation holds its lock.
func TestWorkIsLookedAtClosely(t *testing.T) {
	g := NewWithT(t)
	r, _ := world(t)
	clk := clocktesting.NewFakeClock(now)
	options := observe.Options{Interval: 10 * time.Second, Longest: time.Minute, Timeout: time.Hour, AtOnce: 1}
	r.observer = observe.New(t.Context(), clk, options, func(types.NamespacedName) {})
	probed := reads{r.Client, make(chan struct{}, 64)}
	r.prober = prober{credentials: &credentials.Store{Reader: probed}, clock: clk}
	reconciles := func() {
		t.Helper()
		_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: c1})
		g.Expect(err).NotTo(HaveOccurred())
	}
	reconciles()
	g.Eventually(probed.count).Should(Receive())
	g.Eventually(clk.Waiters).Should(Equal(1))
	clk.Step(10 * time.Second)
	g.Eventually(probed.count).Should(Receive())
	g.Eventually(clk.Waiters).Should(Equal(1))
	clk.Step(10 * time.Second)
	g.Consistently(probed.count, 20*time.Millisecond).ShouldNot(Receive(), "nothing has changed")

	g.Expect(r.Client.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1-ichor-lock"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("ichor-controller/op/default/op-1")},
	})).To(Succeed())
	reconciles()
	g.Eventually(probed.count).Should(Receive(), "at once")
	g.Eventually(clk.Waiters).Should(Equal(2), "the pause that was cut short, and the next")
	clk.Step(10 * time.Second)
	g.Eventually(probed.count).Should(Receive())
	g.Eventually(clk.Waiters).Should(Equal(2))
	clk.Step(10 * time.Second)
	g.Eventually(probed.count).Should(Receive(), "the pause does not grow")
}

func TestIgnoreRaces(t *testing.T) {
	g := NewWithT(t)
	machines := v1alpha1.GroupVersion.WithResource("talosmachines").GroupResource()
	broken := errors.New("broken")
	g.Expect(ignoreRaces(nil)).To(Succeed())
	g.Expect(ignoreRaces(apierrors.NewAlreadyExists(machines, "x"))).To(Succeed())
	g.Expect(ignoreRaces(apierrors.NewConflict(machines, "x", broken))).To(Succeed())
	g.Expect(ignoreRaces(broken)).To(MatchError(broken))
}

type forgetter []types.NamespacedName

func (f *forgetter) Forget(key types.NamespacedName) { *f = append(*f, key) }

// A target that is gone is forgotten, connections included; its machines stay as they are.
func TestReconcileForgets(t *testing.T) {
	g := NewWithT(t)
	r, _ := world(t, recorded("c1-w-1", "w-1", "Worker", "10.0.1.1", "u1"))
	gone := &forgetter{}
	r.Forgetters = []Forgetter{gone}
	r.observer = observe.New(t.Context(), r.Clock, Probes, func(types.NamespacedName) {})
	gauge(c1, talosAPI, true)
	gauge(c1, kubernetesAPI, true)
	g.Expect(r.Client.Delete(t.Context(), &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"}})).To(Succeed())
	_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: c1})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*gone).To(Equal(forgetter{c1}))
	g.Expect(testutil.CollectAndCount(reachable)).To(BeZero(), "its gauges are gone, too")
	g.Expect(r.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "c1-w-1"}, &v1alpha1.TalosMachine{})).To(Succeed())
}

// Whatever keeps discovery from writing does not keep what was seen from the status of the cluster.
func TestReconcileSummarizesInAnyCase(t *testing.T) {
	broken := errors.New("broken")
	conflict := apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("talosmachines").GroupResource(), "x", broken)
	creating := func(err error) interceptor.Funcs {
		return interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return err }}
	}
	// writing fails the writes of the status of a machine, and those of a cluster.
	writing := func(machine, cluster error) interceptor.Funcs {
		return interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			err := cluster
			if _, ok := object.(*v1alpha1.TalosMachine); ok {
				err = machine
			}
			if err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, object, patch, options...)
		}}
	}
	for name, row := range map[string]struct {
		funcs         interceptor.Funcs
		errs          []string
		discovered    metav1.ConditionStatus
		notSummarized bool
	}{
		"nothing fails":               {interceptor.Funcs{}, nil, "True", false},
		"a machine cannot be made":    {creating(broken), []string{"creating TalosMachine default/c1-cp-1: broken"}, "False", false},
		"a machine cannot be written": {writing(broken, nil), []string{"writing status of TalosMachine default/c1-cp-1: broken"}, "False", false},
		"a race about a machine":      {writing(conflict, nil), nil, "False", false},
		"nor can the cluster be": {
			writing(broken, errors.New("no answer")),
			[]string{"writing status of TalosMachine default/c1-cp-1: broken", "writing status of TalosCluster default/c1: no answer"}, "", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r, _ := world(t)
			whole := seeing(answering("10.0.0.1", "ControlPlane", "cp-1", "u1"), answering("10.0.1.1", "Worker", "w-1", "u2"))
			seenBy(t, r, whole)
			r.Client = interceptor.NewClient(r.Client.(client.WithWatch), row.funcs)
			_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: c1})
			if row.errs == nil {
				g.Expect(err).NotTo(HaveOccurred())
			}
			for _, want := range row.errs {
				g.Expect(err).To(MatchError(ContainSubstring(want)))
			}
			cluster := &v1alpha1.TalosCluster{}
			g.Expect(r.Client.Get(t.Context(), c1, cluster)).To(Succeed())
			if row.notSummarized {
				g.Expect(cluster.Status).To(BeZero())
				return
			}
			g.Expect(cluster.Status.KubernetesVersion).To(Equal("v1.35.2"))
			g.Expect(cluster.Status.Conditions).To(HaveLen(len(conditions)+1), "and whether etcd is backed up")
			g.Expect(meta.FindStatusCondition(cluster.Status.Conditions, "TalosReachable").Status).To(BeEquivalentTo("True"))
			g.Expect(meta.FindStatusCondition(cluster.Status.Conditions, "MachinesDiscovered").Status).To(Equal(row.discovered))
		})
	}
}

// seenBy makes a probe the last one of a Reconciler.
func seenBy(t *testing.T, r *Reconciler, whole probe) {
	t.Helper()
	woken := make(chan types.NamespacedName, 1)
	r.observer = observe.New(t.Context(), r.Clock, Probes, func(key types.NamespacedName) { woken <- key })
	r.observer.Want(observe.Key{Object: c1}, func(context.Context) any { return whole })
	NewWithT(t).Eventually(woken).Should(Receive(Equal(c1)))
}
