// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"testing"

	. "github.com/onsi/gomega"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
	"ichor.maesh.dev/hub/test/sim/tlsfault"
)

// order puts a fault in force on a node, or on all without one.
func order(t *testing.T, s *sim.Simulator, times int, name, node string, params ...string) (id string) {
	t.Helper()
	f := fault.Fault{Name: name, Node: node, Times: times, Params: map[string]string{}}
	for i := 0; i+1 < len(params); i += 2 {
		f.Params[params[i]] = params[i+1]
	}
	id, err := s.Inject(f)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return id
}

func TestEndpointServesTheTalosAPI(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 3, Workers: 1})
	c := s.Cluster("a")
	g.Expect(c.Node("cp-1").Address()).NotTo(Equal(c.EndpointHost()))
	api := talosClient(t, c.Talosconfig(), c.EndpointHost())
	ctx := client.WithNode(within(t), c.Node("worker-1").Address())
	g.Expect(versionOf(ctx, api)).To(Equal(sim.DefaultTalosVersion))

	for _, node := range c.Nodes()[:3] { // Whichever holds the endpoint goes down, and another one takes over.
		node.PowerOff()
		g.Eventually(func() (string, error) { return versionOf(ctx, api) }).WithContext(ctx).Should(Equal(sim.DefaultTalosVersion))
		after := s.Journal().Last()
		node.PowerOn()
		awaitEvent(t, s, node, "ready", after)
	}
}

func TestSpoiledCertificates(t *testing.T) {
	for problem, says := range map[string]string{
		"expired": "has expired", "not-yet-valid": "is not yet valid", "other-authority": "unknown authority",
	} {
		t.Run(problem, func(t *testing.T) {
			g := NewWithT(t)
			s := start(t, small)
			c := s.Cluster("small")
			api, k := talosClient(t, c.Talosconfig()), kubeClient(t, c)
			id := order(t, s, 0, fault.ServerCertificate, "", "problem", problem)
			_, err := versionOf(within(t), api)
			g.Expect(err).To(MatchError(ContainSubstring(says)))
			_, err = k.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
			g.Expect(err).To(MatchError(ContainSubstring(says)))
			s.Clear(id)

			id = order(t, s, 0, fault.ClientCertificate, "", "problem", problem)
			_, err = versionOf(within(t), talosClient(t, c.Talosconfig()))
			g.Expect(err).To(haveCode(codes.Unavailable)) // The alert names the cause, if it is read before the connection is cut.
			_, err = kubeClient(t, c).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
			g.Expect(apierrors.IsUnauthorized(err)).To(BeTrue(), "%v", err)
			s.Clear(id)

			g.Eventually(func() error { _, err := versionOf(within(t), api); return err }).Should(Succeed())
			_, err = kubeClient(t, c).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
			g.Expect(err).NotTo(HaveOccurred())
		})
	}
}

// One certificate is refused for good, and others are served.
func TestRevokedCertificate(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	c := s.Cluster("small")
	fresh, err := c.TalosconfigFor("os:admin")
	g.Expect(err).NotTo(HaveOccurred())
	old, other := talosClient(t, c.Talosconfig()), talosClient(t, fresh)
	_, err = versionOf(within(t), old)
	g.Expect(err).NotTo(HaveOccurred())

	order(t, s, 0, fault.ClientCertificate, "", fault.ParamSerial, serialOf(t, c.Talosconfig()))
	_, err = versionOf(within(t), old)
	g.Expect(err).To(haveCode(codes.Unavailable))
	g.Expect(versionOf(client.WithNode(within(t), c.Node("worker-1").Address()), other)).To(Equal("v1.13.6"))
	_, err = kubeClient(t, c).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())

	kubeconfig, err := clientcmd.RESTConfigFromKubeConfig(c.Kubeconfig())
	g.Expect(err).NotTo(HaveOccurred())
	order(t, s, 0, fault.ClientCertificate, "", fault.ParamSerial, serialOfPEM(t, kubeconfig.CertData))
	_, err = kubeClient(t, c).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	g.Expect(apierrors.IsUnauthorized(err)).To(BeTrue(), "%v", err)
}

func serialOf(t *testing.T, talosconfig []byte) string {
	t.Helper()
	g := NewWithT(t)
	config, err := clientconfig.FromBytes(talosconfig)
	g.Expect(err).NotTo(HaveOccurred())
	data, err := base64.StdEncoding.DecodeString(config.Contexts[config.Context].Crt)
	g.Expect(err).NotTo(HaveOccurred())
	return serialOfPEM(t, data)
}

func serialOfPEM(t *testing.T, data []byte) string {
	t.Helper()
	g := NewWithT(t)
	block, _ := pem.Decode(data)
	certificate, err := x509.ParseCertificate(block.Bytes)
	g.Expect(err).NotTo(HaveOccurred())
	return tlsfault.Serial(certificate)
}

func TestRefusedCalls(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	worker := s.Cluster("small").Node("worker-1")
	api := talosClient(t, s.Cluster("small").Talosconfig())
	ctx := client.WithNode(within(t), worker.Address())

	order(t, s, 1, fault.TalosRefused, "worker-1", "method", "MachineService/Version", "code", "Unimplemented")
	_, err := api.Version(ctx)
	g.Expect(err).To(haveCode(codes.Unimplemented))
	_, err = api.Version(ctx)
	g.Expect(err).NotTo(HaveOccurred(), "ordered once")

	id := order(t, s, 0, fault.TalosRefused, "", "method", "State/*", "resource", "ExtensionStatuses.runtime.talos.dev")
	_, err = schematicOf(ctx, api)
	g.Expect(err).To(haveCode(codes.PermissionDenied))
	g.Expect(bootID(ctx, api)).NotTo(BeEmpty())
	s.Clear(id)

	before := worker.State().BootID
	order(t, s, 1, fault.TalosRefused, "", "method", "MachineService/Reboot", "when", "after", "code", "Unavailable")
	g.Expect(api.Reboot(ctx)).To(haveCode(codes.Unavailable))
	awaitEvent(t, s, worker, "ready", 0)
	g.Expect(worker.State().BootID).NotTo(Equal(before))
	g.Expect(s.Journal().Entries(journal.Filter{Method: "MachineService/Reboot"})).To(ConsistOf(HaveField("Code", "OK")))

	order(t, s, 1, fault.KubernetesRefused, "", "resource", "pods/eviction")
	k := kubeClient(t, s.Cluster("small"))
	err = k.PolicyV1().Evictions("default").Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}})
	g.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
	g.Expect(err).To(MatchError(ContainSubstring(`User "admin" cannot create resource "pods/eviction"`)))
}

func TestEtcdFaults(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 3})
	c := s.Cluster("a")
	api := talosClient(t, c.Talosconfig())
	at := func(node string) context.Context { return client.WithNode(within(t), c.Node(node).Address()) }
	members := func(node string) ([]*machineapi.EtcdMember, error) {
		resp, err := api.EtcdMemberList(at(node), &machineapi.EtcdMemberListRequest{})
		if err != nil {
			return nil, err
		}
		return resp.GetMessages()[0].GetMembers(), nil
	}

	id := order(t, s, 0, fault.EtcdMembersDiffer, "cp-2")
	g.Expect(members("cp-2")).To(HaveLen(2))
	g.Expect(members("cp-1")).To(HaveLen(3))
	s.Clear(id)

	id = order(t, s, 0, fault.EtcdLearner, c.Leader().Name())
	g.Eventually(func() *sim.Node { return c.Leader() }).ShouldNot(BeNil(), "another one leads")
	g.Expect(members("cp-3")).To(ContainElement(HaveField("IsLearner", true)))
	s.Clear(id)
	g.Expect(members("cp-3")).NotTo(ContainElement(HaveField("IsLearner", true)))

	id = order(t, s, 0, fault.EtcdAlarm, "cp-2", "alarm", "CORRUPT")
	alarms, err := api.EtcdAlarmList(at("cp-3"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(alarms.GetMessages()[0].GetMemberAlarms()).To(ConsistOf(HaveField("Alarm", machineapi.EtcdMemberAlarm_CORRUPT)))
	s.Clear(id)

	id = order(t, s, 0, fault.EtcdNoLeader, "cp-2")
	_, err = members("cp-2")
	g.Expect(err).To(MatchError(ContainSubstring("no leader")))
	status, err := api.EtcdStatus(at("cp-2"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status.GetMessages()[0].GetMemberStatus().GetLeader()).To(BeZero())
	g.Expect(members("cp-1")).To(HaveLen(3))
	s.Clear(id)
}

func TestInstallerFaults(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	worker := s.Cluster("small").Node("worker-1")
	api := talosClient(t, s.Cluster("small").Talosconfig())
	ctx := client.WithNode(within(t), worker.Address())
	image, err := pull(ctx, api, factoryImage+":v1.13.9")
	g.Expect(err).NotTo(HaveOccurred())

	order(t, s, 1, fault.InstallerBusy, "")
	_, err = install(ctx, api, image)
	g.Expect(err).To(And(haveCode(codes.FailedPrecondition), MatchError(ContainSubstring("already in progress"))))

	order(t, s, 1, fault.InstallerCut, "", "goes-on", "false")
	_, err = install(ctx, api, image)
	g.Expect(err).To(haveCode(codes.Unavailable))
	awaitEvent(t, s, worker, "installer", 0)
	g.Expect(worker.State().UpgradePending).To(BeFalse(), "it was killed")

	order(t, s, 1, fault.InstallerLost, "")
	g.Eventually(func() (int32, error) { return install(ctx, api, image) }).Should(BeZero())
	g.Expect(worker.State().UpgradePending).To(BeFalse(), "nothing was written")

	after := s.Journal().Last()
	order(t, s, 1, fault.InstallerCut, "", "goes-on", "true")
	_, err = install(ctx, api, image)
	g.Expect(err).To(haveCode(codes.Unavailable))
	awaitEvent(t, s, worker, "installer", after)
	g.Expect(worker.State().Next.Version).To(Equal("v1.13.9"))
	g.Expect(errors.Is(err, io.EOF)).To(BeFalse())
}

func TestBudgetsAreCountedAndNamed(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, Workers: 2})
	k := kubeClient(t, s.Cluster("a"))
	budgets := k.PolicyV1().PodDisruptionBudgets("default")
	_, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(4)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(budgets.Get(t.Context(), "web", metav1.GetOptions{})).To(HaveField("Status", And(
		HaveField("CurrentHealthy", int32(4)), HaveField("DesiredHealthy", int32(4)), HaveField("DisruptionsAllowed", int32(0)), HaveField("ExpectedPods", int32(4)),
	)))
	pods, err := k.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	g.Expect(err).NotTo(HaveOccurred())
	err = k.PolicyV1().Evictions("default").Evict(t.Context(), &policyv1.Eviction{ObjectMeta: pods.Items[0].ObjectMeta})
	g.Expect(apierrors.IsTooManyRequests(err)).To(BeTrue(), "%v", err)
	g.Expect(err).To(MatchError("Cannot evict pod as it would violate the pod's disruption budget."))
	status := apierrors.APIStatus(nil)
	g.Expect(errors.As(err, &status)).To(BeTrue())
	g.Expect(status.Status().Details.Causes).To(ConsistOf(metav1.StatusCause{
		Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget web needs 4 healthy pods and has 4 currently",
	}))
}

// A pod with a finalizer ends when that is gone, and not before.
func TestFinalizersKeepPods(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	k := kubeClient(t, s.Cluster("small")).CoreV1().Pods("default")
	_, err := k.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "kept", Finalizers: []string{"example.org/keep"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.k8s.io/pause:3.10"}}},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(k.Delete(t.Context(), "kept", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})).To(Succeed())
	kept, err := k.Get(t.Context(), "kept", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(kept.DeletionTimestamp).NotTo(BeNil())
	kept.Finalizers = nil
	_, err = k.Update(t.Context(), kept, metav1.UpdateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() bool {
		_, err := k.Get(t.Context(), "kept", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).Should(BeTrue())
}

func TestClustersComeAndGo(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	c, err := s.Add(sim.ClusterSpec{Name: "b", ControlPlanes: 1})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(versionOf(within(t), talosClient(t, c.Talosconfig()))).To(Equal(sim.DefaultTalosVersion))
	_, err = s.Add(sim.ClusterSpec{Name: "b", ControlPlanes: 1})
	g.Expect(err).To(MatchError(ContainSubstring("used twice")))
	g.Expect(s.Remove("b")).To(Succeed())
	g.Expect(s.Cluster("b")).To(BeNil())
	g.Expect(s.Remove("b")).NotTo(Succeed())
	again, err := s.Add(sim.ClusterSpec{Name: "b2", ControlPlanes: 1})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again.Node("cp-1").Address()).To(Equal(c.Node("cp-1").Address()), "its addresses were free again")
	g.Expect(s.Clusters()).To(HaveLen(2))
}

// Pods run on machines, whatever other Nodes there are or were for a while.
func TestPodsOfNodesThatGo(t *testing.T) {
	for name, test := range map[string]struct {
		name, node string
		params     []string
		other      string
	}{
		"a Node that is no machine":                {name: fault.ForeignNode, params: []string{fault.ParamName, "foreign"}, other: "foreign"},
		"a machine under another name for a while": {name: fault.OtherIdentity, node: "worker-2", params: []string{fault.ParamName, "stranger"}, other: "stranger"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, Workers: 2})
			k := kubeClient(t, s.Cluster("a")).CoreV1()
			web := func() (nodes []string) {
				pods, err := k.Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
				g.Expect(err).NotTo(HaveOccurred())
				for i := range pods.Items {
					if podReady(&pods.Items[i]) {
						nodes = append(nodes, pods.Items[i].Spec.NodeName)
					}
				}
				return nodes
			}
			g.Eventually(web).WithTimeout(patience).Should(HaveLen(4))
			id := order(t, s, 0, test.name, test.node, test.params...)
			g.Eventually(func() error {
				_, err := k.Nodes().Get(t.Context(), test.other, metav1.GetOptions{})
				return err
			}).WithTimeout(patience).Should(Succeed())
			pods, err := k.Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
			g.Expect(err).NotTo(HaveOccurred())
			for _, pod := range pods.Items {
				err := k.Pods("default").Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
				g.Expect(err == nil || apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
			}
			g.Eventually(web).WithTimeout(patience).Should(HaveLen(4))
			g.Expect(s.Clear(id)).To(BeTrue())
			g.Eventually(web).WithTimeout(patience).Should(And(HaveLen(4), HaveEach(BeElementOf("worker-1", "worker-2"))))
		})
	}
}
