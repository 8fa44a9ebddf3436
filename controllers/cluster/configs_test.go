// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/controllers/machineconfig/bases"
	"ichor.maesh.dev/hub/controllers/observe"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/providers/credentials"
	kubefake "ichor.maesh.dev/hub/providers/kube/fake"
	"ichor.maesh.dev/hub/providers/talos"
	talosfake "ichor.maesh.dev/hub/providers/talos/fake"
)

const workerConfig = "version: v1alpha1\nmachine:\n  type: worker\n  token: hunter2hunter2\ncluster:\n  controlPlane:\n    endpoint: https://10.0.0.1:6443\n"

// configWorld is a Reconciler that looks at one worker, and the worker.
func configWorld(t *testing.T) (*Reconciler, *targets.Facts, *talosfake.Talos) {
	t.Helper()
	machine := recorded("c1-w-1", "w-1", v1alpha1.WorkerRole, "10.0.1.1", "u1")
	machine.UID = "machine-uid"
	r, facts := world(t, machine)
	r.Configs = &bases.Comparer{Store: &bases.Store{Client: r.Client, Live: r.Client}}
	fake := talosfake.New()
	fake.Add("10.0.1.1", answering("10.0.1.1", v1alpha1.WorkerRole, "w-1", "u1").facts, nil)
	fake.Configure("10.0.1.1", talos.Config{Active: []byte(workerConfig), Persistent: []byte(workerConfig)})
	return r, facts, fake
}

// lookAt looks at the worker and writes down what it has.
func lookAt(t *testing.T, r *Reconciler, facts *targets.Facts, fake talos.Provider) *v1alpha1.MachineConfigStatus {
	t.Helper()
	g := NewWithT(t)
	reader, err := fake.Reader(t.Context(), facts.Target())
	g.Expect(err).NotTo(HaveOccurred())
	machine := ask(t.Context(), reader, "10.0.1.1", v1alpha1.WorkerRole)
	machine.config = prober{configs: r.Configs}.askConfig(t.Context(), reader, *facts, machine)
	seen := seeing(machine)
	g.Expect(r.keepBases(t.Context(), *facts, seen)).To(Succeed())
	describe(&facts.Machines[0], seen)
	return facts.Machines[0].Status.Config
}

func patch(facts *targets.Facts, text string) {
	facts.Cluster.Spec.MachineConfig = &v1alpha1.MachineConfigSpec{Patches: []v1alpha1.MachineConfigPatch{{Name: "a", Patch: text}}}
}

// The base is what the machine had when it was first seen, and stays that.
func TestBaseIsKeptOnce(t *testing.T) {
	g := NewWithT(t)
	r, facts, fake := configWorld(t)
	g.Expect(lookAt(t, r, facts, fake)).To(BeNil(), "nothing to compare with yet")
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: "default", Name: "c1-w-1-machine-config"}
	g.Expect(r.Client.Get(t.Context(), key, secret)).To(Succeed())
	g.Expect(string(secret.Data["machineconfig"])).To(Equal(workerConfig))
	g.Expect(string(secret.Type)).To(Equal("cluster.x-k8s.io/secret"))
	g.Expect(secret.Labels).To(Equal(map[string]string{"cluster.x-k8s.io/cluster-name": "c1", "ichor.maesh.dev/machine-config": "base"}))
	g.Expect(secret.OwnerReferences).To(ConsistOf(And(HaveField("Kind", "TalosMachine"), HaveField("UID", facts.Machines[0].UID), HaveField("Controller", BeNil()))))

	other := strings.ReplaceAll(workerConfig, "type: worker\n", "type: worker\n  sysctls: {a: b}\n")
	fake.Configure("10.0.1.1", talos.Config{Active: []byte(other), Persistent: []byte(other)})
	g.Expect(lookAt(t, r, facts, fake)).To(And(HaveField("Effect", v1alpha1.ConfigEffectLive), HaveField("Diff", ContainSubstring("-        a: b"))))
	g.Expect(r.Configs.Store.Keep(t.Context(), &facts.Machines[0], []byte(other))).To(Succeed())
	g.Expect(r.Client.Get(t.Context(), key, secret)).To(Succeed())
	g.Expect(string(secret.Data["machineconfig"])).To(Equal(workerConfig), "never written over")
}

// A machine that waits for its approval is looked at, and nothing is kept of it.
func TestNoBaseWithoutApproval(t *testing.T) {
	g := NewWithT(t)
	r, facts, fake := configWorld(t)
	facts.Machines[0].Spec.Approval = v1alpha1.ApprovalPending
	g.Expect(lookAt(t, r, facts, fake)).To(BeNil())
	list := &corev1.SecretList{}
	g.Expect(r.Client.List(t.Context(), list)).To(Succeed())
	g.Expect(list.Items).To(BeEmpty())
}

func TestConfigOfMachines(t *testing.T) {
	g := NewWithT(t)
	r, facts, fake := configWorld(t)
	lookAt(t, r, facts, fake)
	g.Expect(*lookAt(t, r, facts, fake)).To(Equal(v1alpha1.MachineConfigStatus{
		Effect: v1alpha1.ConfigEffectNone, SpecHash: facts.Cluster.MachineConfigHash(),
		DesiredHash: machineconfig.Hash([]byte(workerConfig)), ActiveHash: machineconfig.Hash([]byte(workerConfig)),
	}))
	patch(facts, "machine:\n  env: {A: hunter2hunter2}\n")
	seen := lookAt(t, r, facts, fake)
	g.Expect(seen).To(And(HaveField("Effect", v1alpha1.ConfigEffectReboot), HaveField("SpecHash", facts.Cluster.MachineConfigHash()),
		HaveField("Diff", And(ContainSubstring("+        A: (secret)"), Not(ContainSubstring("hunter2"))))))
	g.Expect(seen.DesiredHash).NotTo(Equal(seen.ActiveHash))

	patch(facts, "machine:\n  enw: {A: hunter2hunter2}\n")
	g.Expect(lookAt(t, r, facts, fake)).To(And(HaveField("Effect", BeEmpty()), HaveField("Trouble", And(ContainSubstring("machine.enw"), Not(ContainSubstring("hunter2"))))))

	patch(facts, "machine:\n  sysctls: {a: b}\n")
	fake.Configure("10.0.1.1", talos.Config{Active: []byte(workerConfig), Persistent: []byte(workerConfig + "debug: true\n")})
	g.Expect(lookAt(t, r, facts, fake)).To(HaveField("Pending", machineconfig.PendingWords))
	g.Expect(fake.Calls()).To(BeEmpty(), "looking changes nothing: no dry run ends what somebody tries")
}

// denied is a Talos API that lets nobody read configs, or does not answer.
type denied struct {
	talos.Reader

	err error
}

// Config implements talos.Reader.
func (d denied) Config(context.Context, string) (talos.Config, error) { return talos.Config{}, d.err }

func TestConfigThatCannotBeRead(t *testing.T) {
	g := NewWithT(t)
	r, facts, fake := configWorld(t)
	lookAt(t, r, facts, fake)
	before := lookAt(t, r, facts, fake)
	reader, err := fake.Reader(t.Context(), facts.Target())
	g.Expect(err).NotTo(HaveOccurred())
	machine := ask(t.Context(), reader, "10.0.1.1", v1alpha1.WorkerRole)
	for _, row := range []struct {
		err  error
		want string
	}{
		{status.Error(codes.Unavailable, "gone"), ""},
		{status.Error(codes.PermissionDenied, "not authorized"), "its machine config cannot be read, which takes the role os:admin: PermissionDenied: not authorized"},
		{errors.New("broken"), "its machine config cannot be read, which takes the role os:admin: broken"},
	} {
		machine.config = prober{configs: r.Configs}.askConfig(t.Context(), denied{Reader: reader, err: row.err}, *facts, machine)
		describe(&facts.Machines[0], seeing(machine))
		if row.want == "" {
			g.Expect(facts.Machines[0].Status.Config).To(Equal(before), "what was known stays")
			continue
		}
		g.Expect(facts.Machines[0].Status.Config).To(HaveField("Trouble", row.want))
	}
}

func TestConfigsInSync(t *testing.T) {
	for name, row := range map[string]struct {
		config *v1alpha1.MachineConfigStatus
		none   bool
		status metav1.ConditionStatus
		reason string
		says   string
	}{
		"nothing is asked for": {none: true, config: &v1alpha1.MachineConfigStatus{Effect: v1alpha1.ConfigEffectLive}, status: "True", reason: "NotDeclared"},
		"not looked at":        {status: "Unknown", reason: "NotYetObserved", says: "the machine config of c1-w-1 has not been compared with the spec yet"},
		"looked at before":     {config: &v1alpha1.MachineConfigStatus{SpecHash: "old", Effect: v1alpha1.ConfigEffectNone}, status: "Unknown", reason: "NotYetObserved"},
		"it differs": {config: &v1alpha1.MachineConfigStatus{SpecHash: "now", Effect: v1alpha1.ConfigEffectReboot}, status: "False", reason: "OutOfSync",
			says: "the machine config of c1-w-1 is not what the spec asks for; see: ichor config diff --cluster c1; bring it there with: ichor config rollout --cluster c1"},
		"it cannot be":   {config: &v1alpha1.MachineConfigStatus{SpecHash: "now", Trouble: "patch \"a\": it is not YAML"}, status: "False", reason: "OutOfSync", says: "the machine config of c1-w-1: patch \"a\": it is not YAML"},
		"it is that way": {config: &v1alpha1.MachineConfigStatus{SpecHash: "now", Effect: v1alpha1.ConfigEffectNone}, status: "True", reason: "InSync"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, facts, _ := configWorld(t)
			if !row.none {
				patch(facts, "machine: {}\n")
			}
			if row.config != nil && row.config.SpecHash == "now" {
				row.config.SpecHash = facts.Cluster.MachineConfigHash()
			}
			facts.Machines[0].Status.Config = row.config
			setSpecInSync(*facts)
			condition := meta.FindStatusCondition(facts.Cluster.Status.Conditions, v1alpha1.SpecInSyncCondition)
			g.Expect(condition).To(And(HaveField("Status", row.status), HaveField("Reason", row.reason), HaveField("Message", ContainSubstring(row.says))))
		})
	}
}

// writing is a reader during whose reads somebody writes.
type writing struct {
	client.Reader
	write func()
}

func (w writing) Get(ctx context.Context, key client.ObjectKey, object client.Object, o ...client.GetOption) error {
	w.write()
	return w.Reader.Get(ctx, key, object, o...)
}

// The answer to a write is read into the object that was written. A probe that is under way meanwhile must not see it half read: the list of
// patches is empty for a moment, and what was compared then was remembered as the answer to the patches of before.
func TestProbesKeepToWhatTheyWereAskedFor(t *testing.T) {
	g := NewWithT(t)
	r, facts, fake := configWorld(t)
	g.Expect(lookAt(t, r, facts, fake)).To(BeNil(), "the base is stored")
	for _, secret := range secrets(t, "os:admin") {
		g.Expect(r.Client.Create(t.Context(), secret)).To(Succeed())
	}
	patch(facts, "machine:\n  env:\n    A: b\n")
	hash := facts.Cluster.MachineConfigHash()
	ended := make(chan struct{}, 8)
	r.observer = observe.New(t.Context(), clock.RealClock{}, observe.Options{Interval: time.Hour, Timeout: 10 * time.Second, AtOnce: 1},
		func(types.NamespacedName) { ended <- struct{}{} })
	r.prober = prober{
		credentials: &credentials.Store{Reader: r.Client}, talos: fake, kube: kubefake.New(), clock: r.Clock, lookup: endpoints("").lookup,
		configs: &bases.Comparer{Store: &bases.Store{Client: r.Client, Live: writing{r.Client, func() {
			facts.Cluster.Spec.MachineConfig.Patches[0] = v1alpha1.MachineConfigPatch{}
		}}}},
	}
	r.look(*facts, false)
	g.Eventually(ended).Should(Receive())
	seen, _ := r.look(*facts, false)
	look := seen.machines["10.0.1.1"].config
	g.Expect(look).NotTo(BeNil(), "%+v", seen)
	g.Expect(look.specHash).To(Equal(hash))
	g.Expect(look.compared).To(And(HaveField("Effect", v1alpha1.ConfigEffectReboot), HaveField("Diff", ContainSubstring("A: (secret)"))))
}
