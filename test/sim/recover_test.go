// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"bytes"
	"context"
	"io"
	"testing"

	. "github.com/onsi/gomega"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
)

// recovery is a cluster whose etcd is replaced.
type recovery struct {
	*WithT

	sim     *sim.Simulator
	cluster *sim.Cluster
	talos   *client.Client
	kube    kubernetes.Interface
}

func newRecovery(t *testing.T, controlPlanes int) *recovery {
	t.Helper()
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: controlPlanes, Workers: 1})
	c := s.Cluster("a")
	return &recovery{WithT: NewWithT(t), sim: s, cluster: c, talos: talosClient(t, c.Talosconfig()), kube: kubeClient(t, c)}
}

func (r *recovery) at(ctx context.Context, name string) context.Context {
	return client.WithNode(ctx, r.cluster.Node(name).Address())
}

func (r *recovery) snapshot(ctx context.Context) []byte {
	stream, err := r.talos.EtcdSnapshot(r.at(ctx, "cp-1"), &machineapi.EtcdSnapshotRequest{})
	r.Expect(err).NotTo(HaveOccurred())
	data, err := io.ReadAll(stream)
	r.Expect(err).NotTo(HaveOccurred())
	return data
}

func (r *recovery) write(ctx context.Context, name string) {
	_, err := r.kube.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	r.Expect(err).NotTo(HaveOccurred())
}

// wipe takes the etcd of control planes, and waits until they wait for another.
func (r *recovery) wipe(ctx context.Context, names ...string) {
	for _, name := range names {
		r.Eventually(func() error {
			return r.talos.ResetGeneric(r.at(ctx, name), &machineapi.ResetRequest{
				Reboot: true, Mode: machineapi.ResetRequest_SYSTEM_DISK, SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{{Label: "EPHEMERAL", Wipe: true}},
			})
		}).WithContext(ctx).Should(Succeed())
	}
	for _, name := range names {
		r.Eventually(func() string { return r.etcd(ctx, name) }).WithContext(ctx).Should(Equal("Preparing"), name)
	}
}

// etcd is the state of service etcd of a control plane.
func (r *recovery) etcd(ctx context.Context, name string) string {
	reply, err := r.talos.ServiceList(r.at(ctx, name))
	if err != nil {
		return err.Error()
	}
	for _, message := range reply.GetMessages() {
		for _, service := range message.GetServices() {
			if service.GetId() == "etcd" {
				return service.GetState()
			}
		}
	}
	return ""
}

func (r *recovery) bootstrap(ctx context.Context, name string) error {
	return r.talos.Bootstrap(r.at(ctx, name), &machineapi.BootstrapRequest{RecoverEtcd: true})
}

func (r *recovery) ready(names ...string) {
	for _, name := range names {
		r.Eventually(func() bool { return r.cluster.Node(name).State().Ready }, "20s").Should(BeTrue(), name)
	}
}

// What was written before the snapshot is there afterwards, what was written after it is not, and watches of then are Gone.
func TestRecoverEtcd(t *testing.T) {
	r, ctx := newRecovery(t, 3), within(t)
	r.Expect(client.StatusCode(r.bootstrap(ctx, "cp-1"))).To(Equal(codes.AlreadyExists))
	r.write(ctx, "before")
	list, err := r.kube.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	r.Expect(err).NotTo(HaveOccurred())
	data := r.snapshot(ctx)
	r.write(ctx, "after")
	later, err := r.kube.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	r.Expect(err).NotTo(HaveOccurred())
	members, err := r.talos.EtcdMemberList(r.at(ctx, "cp-1"), &machineapi.EtcdMemberListRequest{})
	r.Expect(err).NotTo(HaveOccurred())

	r.wipe(ctx, "cp-1", "cp-2", "cp-3")
	_, err = r.kube.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	r.Expect(err).To(HaveOccurred(), "without etcd there is no API")
	for range 2 {
		_, err = r.talos.EtcdRecover(r.at(ctx, "cp-2"), bytes.NewReader(data))
		r.Expect(err).NotTo(HaveOccurred())
	}
	r.Expect(r.bootstrap(ctx, "cp-2")).To(Succeed())
	r.ready("cp-1", "cp-2", "cp-3")
	r.Eventually(func() codes.Code { return client.StatusCode(r.bootstrap(ctx, "cp-2")) }).Should(Equal(codes.AlreadyExists))

	found, err := r.kube.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(found.Items).To(HaveLen(len(list.Items)))
	r.Expect(found.Items).To(ContainElement(HaveField("Name", "before")))
	r.Expect(found.Items).NotTo(ContainElement(HaveField("Name", "after")))
	watch, err := r.kube.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{ResourceVersion: later.ResourceVersion + "0"})
	r.Expect(err != nil || (<-watch.ResultChan()).Type == "ERROR").To(BeTrue(), "a later revision than there is")

	reply, err := r.talos.EtcdMemberList(r.at(ctx, "cp-1"), &machineapi.EtcdMemberListRequest{})
	r.Expect(err).NotTo(HaveOccurred())
	now := reply.GetMessages()[0].GetMembers()
	r.Expect(now).To(HaveLen(3))
	for _, member := range now {
		r.Expect(member.GetIsLearner()).To(BeFalse())
		for _, old := range members.GetMessages()[0].GetMembers() {
			r.Expect(member.GetId()).NotTo(Equal(old.GetId()), "it is another etcd")
		}
	}
}

// One that is wiped while others have an etcd joins that again, and nobody tells it to.
func TestWipedMemberJoinsAgain(t *testing.T) {
	r, ctx := newRecovery(t, 3), within(t)
	r.write(ctx, "kept")
	before := r.cluster.Node("cp-3").State().BootID
	r.Expect(r.talos.ResetGeneric(r.at(ctx, "cp-3"), &machineapi.ResetRequest{
		Reboot: true, Mode: machineapi.ResetRequest_SYSTEM_DISK, SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{{Label: "EPHEMERAL", Wipe: true}},
	})).To(Succeed())
	r.Eventually(func() string { return r.cluster.Node("cp-3").State().BootID }).ShouldNot(Equal(before))
	r.ready("cp-3")
	reply, err := r.talos.EtcdMemberList(r.at(ctx, "cp-1"), &machineapi.EtcdMemberListRequest{})
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(reply.GetMessages()[0].GetMembers()).To(HaveLen(3))
	_, err = r.kube.CoreV1().ConfigMaps("default").Get(ctx, "kept", metav1.GetOptions{})
	r.Expect(err).NotTo(HaveOccurred())
}

// No etcd begins with what is damaged, and a boot forgets what a control plane was told.
func TestRecoverEtcdInVain(t *testing.T) {
	r, ctx := newRecovery(t, 1), within(t)
	data := r.snapshot(ctx)
	r.wipe(ctx, "cp-1")
	broken := bytes.Clone(data)
	broken[len(broken)/2] ^= 1
	for _, bad := range [][]byte{broken, data[:len(data)-32]} {
		_, err := r.talos.EtcdRecover(r.at(ctx, "cp-1"), bytes.NewReader(bad))
		r.Expect(err).NotTo(HaveOccurred())
		r.Expect(r.bootstrap(ctx, "cp-1")).To(Succeed())
		r.Consistently(func() string { return r.etcd(ctx, "cp-1") }, "200ms").Should(Equal("Preparing"))
	}
	_, err := r.sim.Inject(fault.Fault{Name: fault.BootstrapLost, Cluster: "a", Times: 1})
	r.Expect(err).NotTo(HaveOccurred())
	_, err = r.talos.EtcdRecover(r.at(ctx, "cp-1"), bytes.NewReader(data))
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(r.bootstrap(ctx, "cp-1")).To(Succeed())
	r.Consistently(func() string { return r.etcd(ctx, "cp-1") }, "200ms").Should(Equal("Preparing"))
	r.cluster.Node("cp-1").PowerOff()
	r.cluster.Node("cp-1").PowerOn()
	r.Eventually(func() string { return r.etcd(ctx, "cp-1") }).WithContext(ctx).Should(Equal("Preparing"))
	r.Expect(r.bootstrap(ctx, "cp-1")).To(Succeed())
	r.ready("cp-1")
}

// An etcd that waits for too long fails. It takes a snapshot all the same, and begins with it when it is told to; where it is to join another
// one, nothing but a boot helps.
func TestRecoverEtcdThatHasGivenUp(t *testing.T) {
	r, ctx := newRecovery(t, 2), within(t)
	data := r.snapshot(ctx)
	id := order(t, r.sim, 0, fault.EtcdGivesUp, "", fault.ParamDelay, "200ms")
	for _, name := range []string{"cp-1", "cp-2"} {
		r.Eventually(func() error {
			return r.talos.ResetGeneric(r.at(ctx, name), &machineapi.ResetRequest{
				Reboot: true, Mode: machineapi.ResetRequest_SYSTEM_DISK, SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{{Label: "EPHEMERAL", Wipe: true}},
			})
		}).WithContext(ctx).Should(Succeed())
	}
	for _, name := range []string{"cp-1", "cp-2"} {
		r.Eventually(func() string { return r.etcd(ctx, name) }).WithContext(ctx).Should(Equal("Failed"), name)
	}
	r.sim.Clear(id)
	_, err := r.talos.EtcdRecover(r.at(ctx, "cp-1"), bytes.NewReader(data))
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(r.etcd(ctx, "cp-1")).To(Equal("Failed"), "it was told nothing yet")
	r.Expect(r.bootstrap(ctx, "cp-1")).To(Succeed())
	r.ready("cp-1")
	r.Consistently(func() string { return r.etcd(ctx, "cp-2") }, "200ms").Should(Equal("Failed"), "it does not look for others any more")
	_ = r.talos.Reboot(r.at(ctx, "cp-2")) // It may be down before its answer has arrived.
	r.ready("cp-2")
}
