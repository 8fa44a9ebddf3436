// SPDX-License-Identifier: Apache-2.0

package etcdrestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/kube"
	kubefake "ichor.maesh.dev/hub/providers/kube/fake"
	"ichor.maesh.dev/hub/providers/talos"
	talosfake "ichor.maesh.dev/hub/providers/talos/fake"
	"ichor.maesh.dev/hub/providers/talos/fingerprint"
	"ichor.maesh.dev/hub/providers/target"
)

// storage stands in for what is stored.
type storage struct {
	snapshot *v1alpha1.EtcdSnapshot
	data     []byte
	broken   error
	taken    []string
}

func (s *storage) Find(context.Context, target.Target, string) (*v1alpha1.EtcdSnapshot, error) {
	if s.snapshot == nil {
		return nil, fmt.Errorf("%w: it is not there", kind.ErrUnusable)
	}
	return s.snapshot, nil
}

func (s *storage) Check(context.Context, *v1alpha1.EtcdSnapshot) error { return s.broken }

func (s *storage) Read(_ context.Context, _ *v1alpha1.EtcdSnapshot, take func(io.Reader) error) error {
	if s.broken != nil {
		return take(io.MultiReader(bytes.NewReader(s.data), brokenReader{s.broken}))
	}
	return take(bytes.NewReader(s.data))
}

type brokenReader struct{ err error }

// Read implements io.Reader.
func (r brokenReader) Read([]byte) (int, error) { return 0, r.err }

func (s *storage) Take(ctx context.Context, _ target.Target, g guard.Func, name string) error {
	s.taken = append(s.taken, name)
	return g(ctx)
}

const config = "version: v1alpha1\nmachine:\n  type: controlplane\ncluster:\n  secretboxEncryptionSecret: c2VjcmV0\n"

// named is a machine config that has the key of the others under a name.
func named(name string) string {
	return "version: v1alpha1\nmachine:\n  type: controlplane\n---\napiVersion: v1alpha1\nkind: KubeEtcdEncryptionConfig\nconfig:\n  resources:\n    - resources: [secrets]\n" +
		"      providers:\n        - secretbox: {keys: [{name: new, secret: bmV3}, {name: " + name + ", secret: c2VjcmV0}]}\n"
}

// world is the cluster of the tables, with fakes in place of its APIs, and a snapshot of it.
func world(t *testing.T) (*Executor, *talosfake.Talos, *kubefake.Kube, *storage, kind.Scope) {
	t.Helper()
	machines, api, s := talosfake.New(), kubefake.New(), scope()
	s.Guard = func(context.Context) error { return nil }
	keys, err := fingerprint.Keys([]byte(config))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	kept := &storage{data: []byte("a snapshot"), snapshot: &v1alpha1.EtcdSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: "s1"}, Spec: v1alpha1.EtcdSnapshotSpec{ClusterName: "c1", Contents: &v1alpha1.SnapshotContents{
			TakenTime: metav1.NewTime(noon), SizeBytes: 544, Revision: 12, EtcdVersion: "3.6.4", Keys: keys,
		}},
	}}
	for i, m := range s.Approved {
		var etcd *talos.Etcd
		if m.Spec.Role == v1alpha1.ControlPlaneRole {
			etcd = &talos.Etcd{MemberID: uint64(i + 1), Leader: 1, Version: "3.6.4", Members: []talos.EtcdMember{{ID: 1, Started: true}, {ID: 2, Started: true}, {ID: 3, Started: true}}}
		}
		name := m.Status.NodeName
		machines.Add(m.Spec.Address, talos.Machine{BootID: name + "-boot-0", UUID: m.Spec.UUID, NodeName: name, Version: "v1.13.6", Stage: "running", Ready: true}, etcd)
		machines.Configure(m.Spec.Address, talos.Config{Active: []byte(config)})
		machines.Serve(m.Spec.Address, talos.Service{ID: "kubelet", Running: true, Healthy: true, Checked: true, Started: noon})
		machines.Hold(m.Spec.Address, talos.Volume{ID: "EPHEMERAL", Partition: true}, talos.Volume{ID: "STATE", Partition: true}, talos.Volume{ID: "ETCD", Partition: true})
		api.Set(kube.Node{Name: name, UUID: m.Spec.UUID, Ready: true})
	}
	e := New(machines, api, kept, kept)
	e.Begins = 20 * time.Millisecond
	return e, machines, api, kept, s
}

// Case I3: everything is found before anything is touched.
func TestCaseI3Check(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*talosfake.Talos, *storage)
		want   string
	}{
		"all is well": {func(*talosfake.Talos, *storage) {}, ""},
		"newer etcd": {func(_ *talosfake.Talos, s *storage) { s.snapshot.Spec.Contents.EtcdVersion = "3.7.0" },
			"c1-cp-1: the snapshot is of etcd 3.7.0, and etcd 3.6.4, which runs there, cannot read it: upgrade Talos first; c1-cp-2: "},
		"older etcd":    {func(_ *talosfake.Talos, s *storage) { s.snapshot.Spec.Contents.EtcdVersion = "3.5.21" }, ""},
		"a later patch": {func(_ *talosfake.Talos, s *storage) { s.snapshot.Spec.Contents.EtcdVersion = "3.6.9" }, ""},
		"no etcd answers, and Talos tells": {func(t *talosfake.Talos, s *storage) {
			s.snapshot.Spec.Contents.EtcdVersion = "3.7.0"
			t.LoseEtcd("at-cp-1")
			t.LoseEtcd("at-cp-2")
			t.LoseEtcd("at-cp-3")
		}, "c1-cp-1: the snapshot is of etcd 3.7.0, and etcd 3.6, which runs there"},
		"another Kubernetes CA": {func(_ *talosfake.Talos, s *storage) { s.snapshot.Spec.Contents.Keys.KubernetesCA = "0123456789abcdef" },
			"c1-cp-1: the Kubernetes CA is another one than that of the snapshot (fingerprint none, want 0123456789ab)"},
		"another key of service accounts": {func(_ *talosfake.Talos, s *storage) {
			s.snapshot.Spec.Contents.Keys.ServiceAccount = "0123456789abcdef"
		},
			"c1-cp-1: the key of service accounts is another one"},
		"another key on one of them": {func(t *talosfake.Talos, _ *storage) {
			t.Configure("at-cp-2", talos.Config{Active: []byte("version: v1alpha1\nmachine:\n  type: controlplane\ncluster:\n  secretboxEncryptionSecret: b3RoZXI=\n")})
		}, "c1-cp-2: the secretbox key "},
		"the key under another name": {func(t *talosfake.Talos, _ *storage) {
			t.Configure("at-cp-2", talos.Config{Active: []byte(named("old"))})
		}, `c1-cp-2: the secretbox key 2bb80d537b1d, which encrypts Secrets of the snapshot, is named "old" in the machine config, and they are read only under its name "key2"`},
		"the key under its name in another form": {func(t *talosfake.Talos, _ *storage) {
			t.Configure("at-cp-2", talos.Config{Active: []byte(named("key2"))})
		}, ""},
		"a snapshot that does not tell the name": {func(t *talosfake.Talos, s *storage) {
			t.Configure("at-cp-2", talos.Config{Active: []byte(named("old"))})
			s.snapshot.Spec.Contents.Keys.Encryption[0].Name = ""
		}, ""},
		"a machine of type init": {func(t *talosfake.Talos, _ *storage) {
			t.Configure("at-cp-3", talos.Config{Active: []byte("version: v1alpha1\nmachine:\n  type: init\ncluster:\n  secretboxEncryptionSecret: c2VjcmV0\n")})
		}, "c1-cp-3: machine.type is init"},
		"damaged":       {func(_ *talosfake.Talos, s *storage) { s.broken = fmt.Errorf("%w: cut", kind.ErrUnusable) }, "the snapshot cannot be used: cut"},
		"not there":     {func(_ *talosfake.Talos, s *storage) { s.snapshot = nil }, "the snapshot cannot be used: it is not there"},
		"being deleted": {func(_ *talosfake.Talos, s *storage) { s.snapshot.DeletionTimestamp = &metav1.Time{Time: noon} }, "EtcdSnapshot s1 is being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e, machines, api, kept, s := world(t)
			row.change(machines, kept)
			outcome, err := e.Do(t.Context(), s, whole("Check", "Checking"), "Checking")
			if row.want == "" {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(outcome.Message).To(ContainSubstring("revision 12 of etcd"))
			} else {
				g.Expect(err).To(MatchError(HavePrefix(row.want)))
				g.Expect(e.Classify(err)).To(BeEquivalentTo("Permanent"))
			}
			g.Expect(machines.Calls()).To(BeEmpty())
			g.Expect(api.Calls()).To(BeEmpty())
		})
	}
	g := NewWithT(t)
	e, machines, _, _, s := world(t)
	machines.Silence("at-cp-2", true)
	_, err := e.Do(t.Context(), s, whole("Check", "Checking"), "Checking")
	g.Expect(e.Classify(err)).To(BeEquivalentTo("Retryable"), "who does not answer may answer soon: %v", err)
}

// What is not told is not compared.
func TestCompareWithoutFacts(t *testing.T) {
	g := NewWithT(t)
	g.Expect(compare(&v1alpha1.SnapshotContents{}, map[string]found{"cp-1": {}, "cp-2": {Etcd: "3.6"}})).To(BeEmpty())
	g.Expect(compare(&v1alpha1.SnapshotContents{EtcdVersion: "3.6.4"}, map[string]found{"cp-1": {}})).To(ConsistOf(
		"cp-1: the snapshot is of etcd 3.6.4, and which etcd runs there is not known"))
	was := &v1alpha1.SnapshotContents{Keys: v1alpha1.SnapshotKeys{KubernetesCA: "old-ca", ServiceAccount: "sa"}}
	g.Expect(compare(was, map[string]found{"cp-1": {Keys: v1alpha1.SnapshotKeys{KubernetesCA: "new-ca", ServiceAccount: "sa"}}})).To(BeEmpty(), "the CA was rotated since")
	g.Expect(compare(was, map[string]found{"cp-1": {Keys: v1alpha1.SnapshotKeys{KubernetesCA: "new-ca", ServiceAccount: "other"}}})).To(HaveLen(2), "it is another cluster")
	g.Expect(rotated(was, map[string]found{"cp-1": {Keys: was.Keys}, "cp-2": {Keys: v1alpha1.SnapshotKeys{KubernetesCA: "new-ca", ServiceAccount: "sa"}}})).To(Equal(
		"; cp-2: the Kubernetes CA is another one than that of the snapshot (fingerprint new-ca, want old-ca): it was rotated since, and stays as it is"))
	g.Expect(rotated(was, map[string]found{"cp-1": {Keys: was.Keys}})).To(BeEmpty())
	_, _, err := read([]byte("version: v1alpha1\nmachine: [s3cret]\n"))
	g.Expect(err).To(MatchError("the machine config cannot be read"))
	_, pinned, err := read([]byte("version: v1alpha1\nmachine:\n  type: controlplane\ncluster:\n  etcd:\n    image: registry.k8s.io/etcd:v3.6.11\n"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pinned).To(HaveSuffix("3.6.11"))
}

func TestWipe(t *testing.T) {
	g := NewWithT(t)
	e, machines, _, _, s := world(t)
	unit := of("cp-1", "Wipe", "Resetting", booted("cp-1-boot-0"))
	_, err := e.Do(t.Context(), s, unit, "Resetting")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(machines.Wiped("at-cp-1")).To(Equal(&talos.Reset{Partitions: []string{"EPHEMERAL", "ETCD"}}), "its machine config stays")
	g.Expect(machines.Prepares("at-cp-1")).To(BeTrue())
	_, err = e.Do(t.Context(), s, unit, "Resetting")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(machines.Calls()).To(Equal([]string{"Reset at-cp-1"}), "it has booted since the claim")
	machines.Change("at-cp-2", func(m *talos.Machine, _ *talos.Etcd) { m.UUID = "uuid-9" })
	_, err = e.Do(t.Context(), s, of("cp-2", "Wipe", "Resetting", booted("cp-2-boot-0")), "Resetting")
	g.Expect(err).To(MatchError(ContainSubstring(`has UUID "uuid-9"`)))
	machines.Hold("at-cp-3", talos.Volume{ID: "ETCD", Partition: true})
	_, err = e.Do(t.Context(), s, of("cp-3", "Wipe", "Resetting", booted("cp-3-boot-0")), "Resetting")
	g.Expect(e.Classify(err)).To(BeEquivalentTo("Permanent"))
	g.Expect(machines.Calls()).To(HaveLen(1))
}

// The chosen control plane is sent the snapshot and told to begin; what is repeated is harmless, and what comes too early is tried again.
func TestRecover(t *testing.T) {
	g := NewWithT(t)
	e, machines, _, kept, s := world(t)
	sends, tells := of("cp-1", "Recover", "Recovering"), of("cp-1", "Recover", "Bootstrapping")
	outcome, err := e.Do(t.Context(), s, sends, "Recovering")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(outcome.Message).To(Equal("etcd runs there already"))
	g.Expect(machines.Calls()).To(BeEmpty())

	machines.LoseEtcd("at-cp-1")
	_, err = e.Do(t.Context(), s, sends, "Recovering")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(machines.Staged("at-cp-1")).To(Equal([]byte("a snapshot")))
	kept.broken = fmt.Errorf("%w: cut", kind.ErrUnusable)
	_, err = e.Do(t.Context(), s, sends, "Recovering")
	g.Expect(e.Classify(err)).To(BeEquivalentTo("Permanent"), "%v", err)
	g.Expect(machines.Staged("at-cp-1")).To(Equal([]byte("a snapshot")), "half of one replaces nothing")
	kept.broken = nil
	machines.FailNext("RecoverEtcd", "at-cp-1", status.Error(codes.FailedPrecondition, "etcd service is not ready for recovery yet"))
	_, err = e.Do(t.Context(), s, sends, "Recovering")
	g.Expect(e.Classify(err)).To(BeEquivalentTo("Retryable"))

	for _, code := range []codes.Code{codes.FailedPrecondition, codes.DeadlineExceeded, codes.Unavailable} {
		machines.FailNext("BootstrapEtcd", "at-cp-1", status.Error(code, "bootstrap is not available yet"))
		_, err = e.Do(t.Context(), s, tells, "Bootstrapping")
		g.Expect(e.Classify(err)).To(BeEquivalentTo("Retryable"), "%s", code)
	}
	machines.FailNext("BootstrapEtcd", "at-cp-1", status.Error(codes.PermissionDenied, "not authorized"))
	_, err = e.Do(t.Context(), s, tells, "Bootstrapping")
	g.Expect(e.Classify(err)).To(BeEquivalentTo("Permanent"))
	_, err = e.Do(t.Context(), s, tells, "Bootstrapping")
	g.Expect(err).NotTo(HaveOccurred())
	outcome, err = e.Do(t.Context(), s, tells, "Bootstrapping")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(outcome.Message).To(Equal("it had begun already"))
	g.Expect(machines.Calls()).To(Equal([]string{"RecoverEtcd at-cp-1", "BootstrapEtcd at-cp-1"}))
}

// forgetful machines accept that they are to begin an etcd, and do not.
type forgetful struct{ talos.Provider }

type forgetfulWriter struct{ talos.Writer }

// Writer implements talos.Provider.
func (f forgetful) Writer(ctx context.Context, t target.Target, g guard.Func) (talos.Writer, error) {
	writer, err := f.Provider.Writer(ctx, t, g)
	return forgetfulWriter{writer}, err
}

// BootstrapEtcd implements talos.Writer.
func (forgetfulWriter) BootstrapEtcd(context.Context, string, bool) error { return nil }

// Cases I1 and I5: that it was accepted says nothing.
func TestCaseI1I5BootstrapThatIsForgotten(t *testing.T) {
	g := NewWithT(t)
	_, machines, api, kept, s := world(t)
	machines.LoseEtcd("at-cp-1")
	e := New(forgetful{machines}, api, kept, kept)
	e.Begins = 20 * time.Millisecond
	_, err := e.Do(t.Context(), s, of("cp-1", "Recover", "Bootstrapping"), "Bootstrapping")
	g.Expect(err).To(MatchError("etcd at at-cp-1 has not begun within 20ms"))
	g.Expect(e.Classify(err)).To(BeEquivalentTo("Retryable"), "it is told once more")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	e.Begins = time.Hour
	_, err = e.Do(ended, s, of("cp-1", "Recover", "Bootstrapping"), "Bootstrapping")
	g.Expect(err).To(MatchError(context.Canceled))
}

// An etcd that has waited for too long takes the snapshot and begins as one that waits does.
func TestRecoverAfterEtcdHasGivenUp(t *testing.T) {
	g := NewWithT(t)
	e, machines, _, _, s := world(t)
	for _, address := range []string{"at-cp-1", "at-cp-2", "at-cp-3"} {
		machines.LoseEtcd(address)
		machines.GiveUp(address)
	}
	own, ok := e.Observe(t.Context(), s, of("cp-1", "Recover", "")).Own.(View)
	g.Expect(ok).To(BeTrue())
	g.Expect(own.Others).To(BeEmpty(), "none of them has an etcd")
	machines.LoseEtcd("at-cp-1")
	g.Expect(e.Observe(t.Context(), s, of("cp-1", "Wipe", "Preparing")).Own).To(HaveField("Others", HaveLen(2)), "they are wiped once more")
	machines.GiveUp("at-cp-1")
	for _, step := range []v1alpha1.OperationStep{"Recovering", "Bootstrapping"} {
		_, err := e.Do(t.Context(), s, of("cp-1", "Recover", step), step)
		g.Expect(err).NotTo(HaveOccurred())
	}
	_, err := e.Do(t.Context(), s, of("cp-2", "Join", "Rebooting", booted("cp-2-boot-0")), "Rebooting")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(machines.Calls()).To(Equal([]string{"RecoverEtcd at-cp-1", "BootstrapEtcd at-cp-1", "Reboot at-cp-2"}))
	g.Expect(own.gaveUp()).To(BeTrue())
}

// An etcd that was told to begin and cannot is no etcd that has begun.
func TestBootstrapThatFails(t *testing.T) {
	g := NewWithT(t)
	_, machines, api, kept, s := world(t)
	machines.LoseEtcd("at-cp-1")
	machines.GiveUp("at-cp-1")
	e := New(forgetful{machines}, api, kept, kept)
	_, err := e.Do(t.Context(), s, of("cp-1", "Recover", "Bootstrapping"), "Bootstrapping")
	g.Expect(err).To(MatchError("service etcd at at-cp-1 is Failed; why: talosctl -n at-cp-1 service etcd"))
	g.Expect(e.Classify(err)).To(BeEquivalentTo("Permanent"), "it is sent the snapshot anew when somebody has mended that")
}

// Case I4: what remembers another time is restarted, or goes.
func TestCaseI4KubeletAndCleaning(t *testing.T) {
	g := NewWithT(t)
	e, machines, api, kept, s := world(t)
	worker := of("w-1", "Kubelets", "Restarting", started(noon))
	for range 2 {
		_, err := e.Do(t.Context(), s, worker, "Restarting")
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(machines.Calls()).To(Equal([]string{"RestartService at-w-1"}))

	api.Set(kube.Node{Name: "gone", UUID: "x"})
	api.Set(kube.Node{Name: "renamed", UUID: "UUID-w-1"})
	api.Set(kube.Node{Name: "windows", OSImage: "Windows"})
	outcome, err := e.Do(t.Context(), s, whole("Clean", "Cleaning"), "Cleaning")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(outcome.Message).To(Equal("1 stale Nodes"))
	g.Expect(api.Stale()).To(Equal([]kube.Stale{{Nodes: []string{"gone"}, RenewedBefore: noon.Add(time.Minute)}}))

	_, err = e.Do(t.Context(), s, whole("Snapshot", "Snapshotting"), "Snapshotting")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(kept.taken).To(Equal([]string{"c1-etcd-restore-x-01234567"}))
	g.Expect(e.Undo(t.Context(), s, worker, "Restarting", errors.New("x"))).To(Succeed())
	_, err = e.Do(t.Context(), s, worker, "Joining")
	g.Expect(err).To(MatchError("step Joining makes no call"))
	g.Expect(e.StoresSnapshots).To(BeTrue())
	g.Expect(New(machines, api, nil, nil).StoresSnapshots).To(BeFalse())
}

// What each stage looks at.
func TestObserve(t *testing.T) {
	g := NewWithT(t)
	e, machines, api, kept, s := world(t)
	machines.Silence("at-cp-2", true)
	view := func(unit kind.Unit) View {
		own, ok := e.Observe(t.Context(), s, unit).Own.(View)
		g.Expect(ok).To(BeTrue())
		return own
	}
	g.Expect(view(whole("Check", "")).Machines).To(Equal(map[string]Machine{
		"c1-cp-1": {UUID: "uuid-cp-1", Stage: "running"}, "c1-cp-2": {Trouble: "no answer"}, "c1-cp-3": {UUID: "uuid-cp-3", Stage: "running"},
	}))
	g.Expect(view(whole("Snapshot", "")).Target.Etcd).To(HaveLen(3))
	g.Expect(view(of("cp-1", "Wipe", "")).Volumes).To(HaveLen(3))
	g.Expect(view(of("cp-2", "Wipe", ""))).To(Equal(View{Trouble: "no answer"}))
	g.Expect(view(of("cp-1", "Wipe", "")).Wanted).To(BeZero())
	g.Expect(view(of("cp-1", "Wipe", "")).Machines).To(HaveLen(3))
	g.Expect(view(of("cp-1", "Wipe", "")).Machines["c1-cp-2"].Trouble).To(Equal("no answer"))
	kept.snapshot.Spec.Contents.EtcdVersion = "3.7.0"
	g.Expect(view(of("cp-1", "Wipe", "")).Machines["c1-cp-3"].Objections).To(ConsistOf(HavePrefix("c1-cp-3: the snapshot is of etcd 3.7.0")))
	g.Expect(view(of("cp-1", "Wipe", "Preparing")).Machines).To(BeNil(), "nobody asks any more")
	api.SetRevision(99)
	g.Expect(view(of("cp-1", "Recover", "Verifying"))).To(And(HaveField("Wanted", BeEquivalentTo(12)), HaveField("Revision", BeEquivalentTo(12))), "later ones say no more")
	api.SetRevision(3)
	g.Expect(view(whole("Verify", ""))).To(And(HaveField("Wanted", BeEquivalentTo(12)), HaveField("Revision", BeEquivalentTo(3)), HaveField("Target.Nodes", HaveLen(4))))
	machines.LoseEtcd("at-cp-1")
	g.Expect(view(of("cp-1", "Wipe", "Preparing")).Others).To(Equal(map[string]string{"c1-cp-2": "no answer", "c1-cp-3": "Running"}))
	g.Expect(view(of("cp-1", "Recover", "")).Others).To(HaveLen(2))
	g.Expect(view(of("cp-3", "Wipe", "Preparing")).Others).To(BeNil(), "it has an etcd itself")
	g.Expect(view(of("cp-1", "Recover", "Verifying")).Wanted).To(BeZero(), "there is no etcd that it could be the revision of")
	api.Silence(true)
	g.Expect(view(whole("Verify", ""))).To(And(HaveField("RevisionTrouble", "no answer"), HaveField("PodsTrouble", "no answer")))
}
