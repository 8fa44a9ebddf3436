// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/shutdown"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/script"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/providers/target"
)

// snapshots stand in for the storage of snapshots.
type snapshots struct{ *script.Script }

// Take implements shutdown.Snapshots.
func (s *snapshots) Take(ctx context.Context, _ target.Target, g guard.Func, name string) error {
	if err := g(ctx); err != nil {
		return err
	}
	return s.Run(ctx, "Take", "snapshot", func() error {
		if operation, _, _ := strings.Cut(name, "-"); !slices.Contains([]string{"op", "stop", "up", "keys"}, operation) {
			return fmt.Errorf("the name %q does not tell the operation", name)
		}
		return nil
	})
}

func stop(snapshot v1alpha1.ShutdownSnapshot) v1alpha1.TalosOperationSpec {
	return v1alpha1.TalosOperationSpec{Kind: v1alpha1.ShutdownKind, Shutdown: &v1alpha1.ShutdownParameters{Action: v1alpha1.ClusterStop, Snapshot: snapshot}}
}

func start() v1alpha1.TalosOperationSpec {
	return v1alpha1.TalosOperationSpec{Kind: v1alpha1.ShutdownKind, Shutdown: &v1alpha1.ShutdownParameters{Action: v1alpha1.ClusterStart}}
}

// newPowerFleet makes a target whose Kubernetes API needs a majority of its control planes, and whose Nodes are Ready while they are on.
func newPowerFleet(ctx context.Context, controlPlanes, workers int) *fleet {
	GinkgoHelper()
	f := newFleet(ctx, controlPlanes, workers)
	f.powered(ctx, controlPlanes)
	return f
}

// powered makes machines of a target go off and on for good.
func (f *fleet) powered(ctx context.Context, controlPlanes int) {
	GinkgoHelper()
	f.deadlines = map[v1alpha1.OperationStep]time.Duration{v1alpha1.StayingOffStep: 50 * time.Millisecond}
	var mu sync.Mutex
	off := map[string]bool{}
	power := func(name string, on bool) {
		mu.Lock()
		defer mu.Unlock()
		off[name] = !on
		down := 0
		for name, is := range off {
			if is && strings.HasPrefix(name, "cp") {
				down++
			}
		}
		f.kube.Silence(controlPlanes-down <= controlPlanes/2)
	}
	f.talos.PoweredOff = func(address string) {
		name := f.nameOf(address)
		f.kube.Change(name, func(n *kube.Node) { n.Ready = false })
		power(name, false)
	}
	f.talos.Rebooted = func(_ string, now talos.Machine) {
		f.kube.Change(now.NodeName, func(n *kube.Node) { n.Ready, n.BootID = true, now.BootID })
		power(now.NodeName, true)
	}
	change(ctx, f.cluster(), func(c *v1alpha1.TalosCluster) {
		c.Spec.EtcdBackup = &v1alpha1.EtcdBackupSpec{Schedule: "0 1 * * *", Keep: 1, BucketURL: "s3://bucket/prefix"}
	})
}

func (f *fleet) nameOf(address string) string {
	for name, at := range f.addresses {
		if at == address {
			return name
		}
	}
	return ""
}

// powerOn is what people do with some machines, or with all.
func (f *fleet) powerOn(names ...string) {
	if len(names) == 0 {
		for name := range f.addresses {
			names = append(names, name)
		}
	}
	for _, name := range names {
		f.talos.PowerOn(f.addresses[name])
	}
}

// power is what the TalosCluster says of its power.
func (f *fleet) power(ctx context.Context) func() (string, error) {
	return func() (string, error) {
		cluster := f.cluster()
		err := admin.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)
		return strings.TrimSpace(string(cluster.Power()) + " " + cluster.StoppedBy()), err
	}
}

// cordoned are the Nodes that are cordoned, with who has done that.
func (f *fleet) cordoned() []string {
	var list []string
	for name := range f.addresses {
		if node := f.kube.Get(name); node.Unschedulable {
			list = append(list, strings.TrimSpace(name+" "+node.CordonedBy))
		}
	}
	slices.Sort(list)
	return list
}

// stopped makes a target that was stopped by an operation.
func stopped(ctx context.Context, f *fleet) *v1alpha1.TalosOperation {
	GinkgoHelper()
	op := f.create(ctx, "stop", stop("None"))
	Eventually(now(ctx, op)).Should(beCompleted())
	Eventually(f.power(ctx)).Should(Equal("Stopped " + f.namespace + "/stop"))
	return op
}

var _ = Describe("A cluster that is stopped", func() {
	It("goes down workers first, control planes one by one and the leader last, and is taken back into service exactly (D16, D3)", func(ctx SpecContext) {
		f := newPowerFleet(ctx, 3, 2)
		f.kube.Change("w2", func(n *kube.Node) { n.Unschedulable = true })
		f.startHub()
		op := f.create(ctx, "stop", stop("Take"))
		Eventually(now(ctx, op)).Should(beCompleted())
		calls := f.calls("Shutdown")
		Expect(calls[:2]).To(ConsistOf("Shutdown w1", "Shutdown w2"))
		Expect(calls[2:]).To(Equal([]string{"Shutdown cp2", "Shutdown cp3", "Shutdown cp1"}))
		Expect(f.snapshots.Calls()).To(Equal([]string{"Take snapshot"}))
		own := f.namespace + "/stop"
		Expect(f.cordoned()).To(Equal([]string{"cp1 " + own, "cp2 " + own, "cp3 " + own, "w1 " + own, "w2"}))
		Expect(f.kube.Calls()).NotTo(ContainElement(HavePrefix("Drain")), "pods would have nowhere to go")
		Eventually(f.power(ctx)).Should(Equal("Stopped " + own))
		Eventually(now(ctx, op)).Should(haveCondition("LockHeld", metav1.ConditionFalse, "Released", BeEmpty()), "a stopped cluster holds no lock")
		Eventually(f.movable).WithContext(ctx).Should(BeTrue())

		By("other operations are told what happened, and the way on")
		other := f.create(ctx, "re", reboot("c-w1"))
		Eventually(now(ctx, other)).Should(bePaused("Refused", ContainSubstring(`ClusterRunning: cluster c was stopped on purpose by TalosOperation %q`, own)))
		Expect(admin.Delete(ctx, other)).To(Succeed())
		Eventually(isGone(ctx, other)).Should(BeTrue())

		By("the record is on the Nodes: the operation itself is not needed")
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Eventually(isGone(ctx, op)).Should(BeTrue())
		Consistently(f.power(ctx), 200*time.Millisecond).Should(Equal("Stopped " + own))

		again := f.create(ctx, "start", start())
		waiting := func(message string) OmegaMatcher {
			return haveCondition("Progressing", metav1.ConditionFalse, "MachinesPoweredOn", Equal(message))
		}
		Eventually(now(ctx, again)).Should(waiting("power on the control planes c-cp1, c-cp2, c-cp3, then the workers c-w1, c-w2"))
		Eventually(f.power(ctx)).Should(Equal("Starting " + own))
		queued := f.create(ctx, "re", reboot("c-w2"))
		Eventually(now(ctx, queued)).Should(bePaused("ClusterLockHeld", Not(BeEmpty())), "a start is what it waits for")
		f.powerOn("cp1", "cp2", "cp3")
		Eventually(now(ctx, again)).Should(waiting("power on the workers c-w1, c-w2"))
		Expect(f.cordoned()).To(HaveLen(5))
		f.powerOn("w1", "w2")
		Eventually(now(ctx, again)).Should(beCompleted())
		Expect(f.cordoned()).To(Equal([]string{"w2"}), "somebody had cordoned it before")
		Eventually(f.power(ctx)).Should(BeEmpty())
		Eventually(now(ctx, queued)).Should(beCompleted())
	})

	It("keeps the leader for last although nobody leads once the quorum is lost", func(ctx SpecContext) {
		f := newPowerFleet(ctx, 5, 0)
		for _, address := range f.addresses {
			f.talos.Change(address, func(_ *talos.Machine, etcd *talos.Etcd) { etcd.Leader = 4 })
		}
		cluster := f.cluster()
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
		cluster.Status.EtcdLeader = "c-cp4"
		Expect(admin.Status().Update(ctx, cluster)).To(Succeed())
		off := f.talos.PoweredOff
		f.talos.PoweredOff = func(address string) {
			off(address)
			if len(f.calls("Shutdown")) < 2 { // This one is the third, and not in the minutes yet.
				return
			}
			for _, address := range f.addresses {
				f.talos.Change(address, func(_ *talos.Machine, etcd *talos.Etcd) { etcd.Leader = 0 })
			}
		}
		f.startHub()
		stopped(ctx, f)
		Expect(f.calls("Shutdown")).To(Equal([]string{"Shutdown cp1", "Shutdown cp2", "Shutdown cp3", "Shutdown cp5", "Shutdown cp4"}))
	})

	It("may have one control plane, or two, and workers go in batches where somebody wants that", func(ctx SpecContext) {
		one := newPowerFleet(ctx, 1, 0)
		one.startHub()
		stopped(ctx, one)
		Expect(one.calls("Shutdown")).To(Equal([]string{"Shutdown cp1"}))

		two := newPowerFleet(ctx, 2, 2)
		hang := two.talos.HangBefore("Shutdown", two.addresses["w1"])
		two.startHub()
		spec := stop("None")
		spec.MaxUnavailable = ptr.To(intstr.FromInt32(1))
		op := two.create(ctx, "stop", spec)
		Eventually(hang.Reached).Should(BeClosed())
		Consistently(func() []string { return two.calls("Shutdown") }, 200*time.Millisecond).Should(BeEmpty())
		hang.Release()
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(two.calls("Shutdown")).To(Equal([]string{"Shutdown w1", "Shutdown w2", "Shutdown cp2", "Shutdown cp1"}))
	})

	It("keeps to the order of its batches although a look at a worker takes longer than one at the next", func(ctx SpecContext) {
		f := newPowerFleet(ctx, 1, 4)
		shutdowns := map[string]*script.Stop{}
		for _, worker := range []string{"w1", "w2", "w3", "w4"} {
			shutdowns[worker] = f.talos.HangBefore("Shutdown", f.addresses[worker])
		}
		f.startHub()
		spec := stop("None")
		spec.MaxUnavailable = ptr.To(intstr.FromInt32(2))
		op := f.create(ctx, "stop", spec)
		Eventually(shutdowns["w1"].Reached).Should(BeClosed())
		Eventually(shutdowns["w2"].Reached).Should(BeClosed())

		first := f.talos.HangBefore("Machine", f.addresses["w4"])
		shutdowns["w1"].Release()
		Eventually(first.Reached).Should(BeClosed(), "a place is free: those who may have it are looked at")
		Eventually(now(ctx, op)).Should(phaseOf("c-w1", v1alpha1.UnitCompleted))
		again := f.talos.HangBefore("Machine", f.addresses["w3"])
		Eventually(again.Reached).Should(BeClosed())
		shutdowns["w2"].Release()
		Eventually(now(ctx, op)).Should(phaseOf("c-w2", v1alpha1.UnitCompleted),
			"what was seen of the others before counts no more")
		first.Release()
		Consistently(shutdowns["w4"].Reached, 300*time.Millisecond).ShouldNot(BeClosed())
		again.Release()
		for _, worker := range []string{"w3", "w4"} {
			Eventually(shutdowns[worker].Reached).Should(BeClosed())
			shutdowns[worker].Release()
		}
		Eventually(now(ctx, op)).Should(beCompleted())
	})

	It("is not begun with while etcd is sick, and is refused what nobody has the means for", func(ctx SpecContext) {
		f := newPowerFleet(ctx, 3, 0)
		f.talos.Change(f.addresses["cp2"], func(_ *talos.Machine, etcd *talos.Etcd) { etcd.Alarms = []string{"NOSPACE"} })
		f.startHub()
		op := f.create(ctx, "stop", stop("None"))
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "EtcdHealthy", ContainSubstring("NOSPACE")))
		Consistently(func() []string { return slices.Concat(f.calls(), f.kube.Calls()) }, 200*time.Millisecond).Should(BeEmpty())
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Eventually(isGone(ctx, op)).Should(BeTrue())

		nothing := f.create(ctx, "start", start())
		Eventually(now(ctx, nothing)).Should(bePaused("Refused", ContainSubstring("ClusterStopped: cluster c was not stopped by an operation")))
		change(ctx, f.cluster(), func(c *v1alpha1.TalosCluster) { c.Spec.EtcdBackup = nil })
		nowhere := f.create(ctx, "snap", stop("Take"))
		Eventually(now(ctx, nowhere)).Should(bePaused("Refused", ContainSubstring("SnapshotStorage: spec.etcdBackup.bucketURL of TalosCluster c is not set")))
		Expect(f.power(ctx)()).To(BeEmpty())
	})

	It("stops at a machine that does not go off, which nobody else may touch, and goes on when its power is cut", func(ctx SpecContext) {
		f := newPowerFleet(ctx, 1, 2)
		f.deadlines[v1alpha1.ShuttingDownStep] = 400 * time.Millisecond
		f.talos.Hang(f.addresses["w1"])
		f.startHub()
		op := f.create(ctx, "stop", stop("None"))
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring(`c-w1: ShuttingDown not over within 400ms: not off yet: it answers, in stage "shutting down"; if it hangs, cut its power`)))
		Expect(f.calls("Shutdown")).To(ConsistOf("Shutdown w1", "Shutdown w2"), "no control plane is told")
		other := f.create(ctx, "re", reboot("c-w2"))
		Eventually(now(ctx, other)).Should(bePaused("ClusterLockHeld", ContainSubstring("it has failed and c-w1 is asked to power off and is not known to be off")))

		f.talos.Silence(f.addresses["w1"], true)
		f.kube.Change("w1", func(n *kube.Node) { n.Ready = false })
		retry(ctx, op)
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("Shutdown")).To(ConsistOf("Shutdown w1", "Shutdown w2", "Shutdown cp1"))
		Eventually(now(ctx, other)).Should(bePaused("Refused", ContainSubstring("ClusterRunning")))
	})

	It("stops at a machine that powers itself on, and tells it once more when somebody says so", func(ctx SpecContext) {
		f := newPowerFleet(ctx, 1, 2)
		off := f.talos.PoweredOff
		var once sync.Once
		f.talos.PoweredOff = func(address string) {
			off(address)
			if address == f.addresses["w2"] {
				once.Do(func() { f.powerOn("w2") })
			}
		}
		f.startHub()
		op := f.create(ctx, "stop", stop("None"))
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("c-w2: it is back by itself, with another boot ID")))
		Expect(f.calls("Shutdown")).To(ConsistOf("Shutdown w1", "Shutdown w2"))
		retry(ctx, op)
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("Shutdown")[2:]).To(Equal([]string{"Shutdown w2", "Shutdown cp1"}))
	})

	It("does not take control planes while a worker is back that had been off", func(ctx SpecContext) {
		f := newPowerFleet(ctx, 1, 2)
		hang := f.talos.HangAfter("Shutdown", f.addresses["w2"])
		f.startHub()
		op := f.create(ctx, "stop", stop("None"))
		Eventually(now(ctx, op)).Should(phaseOf("c-w1", v1alpha1.UnitCompleted))
		Eventually(hang.Reached).Should(BeClosed())
		f.powerOn("w1")
		hang.Release()
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("WorkersOff: back by itself: c-w1")))
		Expect(f.calls("Shutdown")).To(ConsistOf("Shutdown w1", "Shutdown w2"))
		retry(ctx, op)
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("Shutdown")[2:]).To(Equal([]string{"Shutdown w1", "Shutdown cp1"}))
	})

	It("is paused between two machines, and goes on from there although the Kubernetes API is gone", func(ctx SpecContext) {
		f := newPowerFleet(ctx, 3, 1)
		hang := f.talos.HangBefore("Shutdown", f.addresses["cp3"])
		f.startHub()
		op := f.create(ctx, "stop", stop("None"))
		Eventually(hang.Reached).Should(BeClosed())
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = ptr.To(true) })
		hang.Release()
		Eventually(now(ctx, op)).Should(And(bePaused("OperatorPaused", Not(BeEmpty())),
			HaveField("Status.Machines", ContainElement(And(HaveField("Name", "c-cp3"), HaveField("Phase", v1alpha1.UnitCompleted))))), "it was told, and is awaited")
		Consistently(func() []string { return f.calls("Shutdown") }, 300*time.Millisecond).Should(HaveLen(3), "the last one stays")
		Expect(f.power(ctx)()).To(HavePrefix("Stopping "))
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = nil })
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("Shutdown")).To(Equal([]string{"Shutdown w1", "Shutdown cp2", "Shutdown cp3", "Shutdown cp1"}))
	})

	It("gives its cordons back when the operation is deleted half-way, and waits for a start (D4)", func(ctx SpecContext) {
		f := newPowerFleet(ctx, 3, 2)
		hang := f.talos.HangAfter("Shutdown", f.addresses["cp2"])
		f.startHub()
		op := f.create(ctx, "stop", stop("None"))
		Eventually(hang.Reached).Should(BeClosed())
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Consistently(isGone(ctx, op.DeepCopy()), 200*time.Millisecond).Should(BeFalse(), "it was told, and is awaited")
		hang.Release()
		Eventually(isGone(ctx, op)).Should(BeTrue())
		Expect(f.calls("Shutdown")).To(HaveLen(3))
		Expect(f.cordoned()).To(BeEmpty())
		Eventually(f.power(ctx)).Should(Equal("Stopped " + f.namespace + "/stop"))

		again := f.create(ctx, "start", start())
		Eventually(now(ctx, again)).Should(haveCondition("Progressing", metav1.ConditionFalse, "MachinesPoweredOn", ContainSubstring("control planes c-cp2")))
		By("a start that is given up leaves the cluster stopped")
		Expect(admin.Delete(ctx, again)).To(Succeed())
		Eventually(isGone(ctx, again)).Should(BeTrue())
		Eventually(f.power(ctx)).Should(HavePrefix("Stopped "))
		f.powerOn("cp2", "w1", "w2")
		once := f.create(ctx, "start2", start())
		Eventually(now(ctx, once)).Should(beCompleted())
		Eventually(f.power(ctx)).Should(BeEmpty())
	})

	It("keeps its cordons when the operation is moved half-way to another management cluster", func(ctx SpecContext) {
		f := newPowerFleet(ctx, 3, 2)
		hang := f.talos.HangAfter("Shutdown", f.addresses["cp2"])
		f.startHub()
		op := f.create(ctx, "stop", stop("None"))
		Eventually(hang.Reached).Should(BeClosed())
		pauseCluster(ctx, f, true)
		hang.Release()
		Eventually(now(ctx, op)).Should(haveCondition("LockHeld", metav1.ConditionFalse, "Released", BeEmpty()))
		told, cordoned := f.calls(), f.cordoned()
		Expect(cordoned).NotTo(BeEmpty())

		By("clusterctl putting its annotation in the place of all others, and deleting")
		replace := fmt.Sprintf(`[{"op": "add", "path": "/metadata/annotations", "value": {%q: ""}}]`, v1alpha1.DeleteForMoveAnnotation)
		Expect(admin.Patch(ctx, op, client.RawPatch(types.JSONPatchType, []byte(replace)))).To(Succeed())
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Eventually(isGone(ctx, op)).Should(BeTrue())
		Expect(f.cordoned()).To(Equal(cordoned))
		Expect(f.calls()).To(Equal(told))
		Expect(f.power(ctx)()).To(HavePrefix("Stopping "))
	})

	It("is as it was when the operation is deleted before any machine was told", func(ctx SpecContext) {
		f := newPowerFleet(ctx, 1, 1)
		f.talos.Silence(f.addresses["w1"], true) // Its Node is Ready: it is at work, and cannot be told.
		f.startHub()
		op := f.create(ctx, "stop", stop("None"))
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "TargetReachable", ContainSubstring("machine c-w1 does not answer, and is not off: Node w1 is Ready")))
		Expect(f.cordoned()).To(HaveLen(2))
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Eventually(isGone(ctx, op)).Should(BeTrue())
		Expect(f.cordoned()).To(BeEmpty())
		Expect(f.power(ctx)()).To(BeEmpty())
		Expect(f.calls("Shutdown")).To(BeEmpty())
	})

	It("is stopped to its end although the window closes in the middle, and started outside of any", func(ctx SpecContext) {
		f := newPowerFleet(ctx, 1, 1)
		closed := v1alpha1.MaintenanceWindow{Schedule: "0 0 29 2 *", DurationSeconds: 60}
		hang := f.talos.HangBefore("Shutdown", f.addresses["w1"])
		f.startHub()
		op := f.create(ctx, "stop", stop("None"))
		Eventually(hang.Reached).Should(BeClosed())
		change(ctx, f.cluster(), func(c *v1alpha1.TalosCluster) { c.Spec.MaintenanceWindows = []v1alpha1.MaintenanceWindow{closed} })
		hang.Release()
		Eventually(now(ctx, op)).Should(beCompleted())
		Eventually(f.power(ctx)).Should(HavePrefix("Stopped "))
		f.powerOn()
		again := f.create(ctx, "start", start())
		Eventually(now(ctx, again)).Should(beCompleted())
		third := f.create(ctx, "again", stop("None"))
		Eventually(now(ctx, third)).Should(bePaused("WaitingForWindow", Not(BeEmpty())))
	})
})

// powerStep is a step of the executor in one place where it is taken.
type powerStep struct {
	kind.Step

	starts bool
	unit   string
	call   func(f *fleet) (s *script.Script, call, subject string)
}

// powerSteps are the places where steps are taken, by step. A step that is not here fails the matrix.
var powerSteps = map[v1alpha1.OperationStep][]powerStep{
	"Snapshotting": {{unit: "Snapshot", call: func(f *fleet) (*script.Script, string, string) { return f.snapshots.Script, "Take", "snapshot" }}},
	"Cordoning":    {{unit: "Cordon", call: func(f *fleet) (*script.Script, string, string) { return f.kube.Script, "Cordon", "cp2" }}},
	"ShuttingDown": {
		{unit: "c-w1", call: func(f *fleet) (*script.Script, string, string) { return f.talos.Script, "Shutdown", f.addresses["w1"] }},
		{unit: "c-cp3", call: func(f *fleet) (*script.Script, string, string) { return f.talos.Script, "Shutdown", f.addresses["cp3"] }},
		{unit: "c-cp1", call: func(f *fleet) (*script.Script, string, string) { return f.talos.Script, "Shutdown", f.addresses["cp1"] }},
	},
	"StayingOff":  {{unit: "c-w1"}, {unit: "c-cp3"}, {unit: "c-cp1"}},
	"Verifying":   {{unit: "Verify", starts: true}},
	"Uncordoning": {{unit: "Uncordon", starts: true, call: func(f *fleet) (*script.Script, string, string) { return f.kube.Script, "Uncordon", "cp2" }}},
}

var _ = Describe("A hub that is killed while it stops or starts a cluster (B16, E6)", func() {
	for _, step := range shutdown.New(nil, nil, nil).Steps() {
		It("has a place in the matrix for step "+string(step.Name), func() { Expect(powerSteps[step.Name]).NotTo(BeEmpty()) })
		for _, place := range powerSteps[step.Name] {
			place.Step = step
			It(fmt.Sprintf("goes on: %s of %s not claimed yet", step.Name, place.unit), func(ctx SpecContext) {
				f := powerFleetFor(ctx, place)
				stalled := &stalledClaim{step: place.Name, unit: place.unit, reached: make(chan struct{})}
				f.client = func(c client.Client) client.Client { return &stalledClient{Client: c, stalled: stalled} }
				first := f.startHub()
				op := f.createFor(ctx, place)
				Eventually(stalled.reached).Should(BeClosed())
				first.kill()
				f.client = nil
				f.startHub()
				f.expectPowered(ctx, op, place)
			})
			if step.Waits {
				continue
			}
			for name, hang := range map[string]func(*script.Script, string, string) *script.Stop{
				"claimed and not called": (*script.Script).HangBefore, "called and not recorded": (*script.Script).HangAfter,
			} {
				It(fmt.Sprintf("goes on: %s of %s %s", step.Name, place.unit, name), func(ctx SpecContext) {
					f := powerFleetFor(ctx, place)
					stop := hang(place.call(f))
					first := f.startHub()
					op := f.createFor(ctx, place)
					Eventually(stop.Reached).Should(BeClosed())
					first.kill()
					f.startHub()
					f.expectPowered(ctx, op, place)
				})
			}
			for _, after := range []bool{false, true} {
				It(fmt.Sprintf("does nothing more when another leads: %s of %s, called %t", step.Name, place.unit, after), func(ctx SpecContext) {
					f := powerFleetFor(ctx, place)
					plain := f.executors[v1alpha1.ShutdownKind]
					frozen := &frozenCall{Executor: plain, step: place.Name, unit: place.unit, after: after, reached: make(chan struct{}), released: make(chan struct{})}
					f.executors = map[v1alpha1.OperationKind]kind.Executor{v1alpha1.ShutdownKind: frozen}
					first := f.startHub()
					op := f.createFor(ctx, place)
					Eventually(frozen.reached).Should(BeClosed())
					f.executors = map[v1alpha1.OperationKind]kind.Executor{v1alpha1.ShutdownKind: plain}
					f.startHub()
					f.expectPowered(ctx, op, place)
					made := slices.Concat(f.calls(), f.kube.Calls(), f.snapshots.Calls())
					close(frozen.released)
					Eventually(frozen.ended).Should(BeTrue())
					Eventually(first.fenced).Should(BeClosed())
					Expect(slices.Concat(f.calls(), f.kube.Calls(), f.snapshots.Calls())).To(Equal(made), "what was held up arrives nowhere")
				})
			}
		}
	}
})

// powerFleetFor makes a target for a place: one that runs, or one that was stopped, and whose machines are on but for one that boots.
func powerFleetFor(ctx context.Context, place powerStep) *fleet {
	GinkgoHelper()
	f := newPowerFleet(ctx, 3, 1)
	if !place.starts {
		return f
	}
	h := f.startHub()
	stopped(ctx, f)
	h.kill()
	f.powerOn()
	if place.Waits {
		f.talos.Change(f.addresses["w1"], func(m *talos.Machine, _ *talos.Etcd) { m.Ready = false })
	}
	return f
}

func (f *fleet) createFor(ctx context.Context, place powerStep) *v1alpha1.TalosOperation {
	GinkgoHelper()
	if place.starts {
		return f.create(ctx, "op", start())
	}
	return f.create(ctx, "op", stop("Take"))
}

// expectPowered waits for the end, and holds what was done against what may be done.
func (f *fleet) expectPowered(ctx context.Context, op *v1alpha1.TalosOperation, place powerStep) {
	GinkgoHelper()
	if place.starts && place.Waits {
		Eventually(now(ctx, op)).Should(WithTransform(func(o *v1alpha1.TalosOperation) *v1alpha1.UnitStatus { return unitOf(o, place.unit) },
			And(Not(BeNil()), HaveField("Step", place.Name))))
		f.talos.Change(f.addresses["w1"], func(m *talos.Machine, _ *talos.Etcd) { m.Ready = true })
	}
	Eventually(now(ctx, op)).Should(beCompleted())
	Expect(f.calls("Shutdown")).To(Equal([]string{"Shutdown w1", "Shutdown cp2", "Shutdown cp3", "Shutdown cp1"}), "each once, and in this order")
	if place.starts {
		Expect(f.cordoned()).To(BeEmpty())
		Eventually(f.power(ctx)).Should(BeEmpty())
		return
	}
	Expect(f.cordoned()).To(HaveLen(4))
	Eventually(f.power(ctx)).Should(Equal("Stopped " + f.namespace + "/op"))
}
