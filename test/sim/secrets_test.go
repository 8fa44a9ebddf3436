// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	. "github.com/onsi/gomega"
	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/rotatepatcher"
	talossecrets "github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	k8sconfig "github.com/siderolabs/talos/pkg/machinery/config/types/k8s"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	resources "github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/control"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/secrets"
)

// change is what a test does to a machine config.
type change = rotatepatcher.PatcherFunc

func security(change func(*v1alpha1.MachineConfig)) change {
	return func(c config.Provider) (config.Provider, error) {
		return c.PatchV1Alpha1(func(raw *v1alpha1.Config) error {
			change(raw.MachineConfig)
			return nil
		})
	}
}

func acceptTalos(ca []byte) change {
	return security(func(m *v1alpha1.MachineConfig) {
		m.MachineAcceptedCAs = append(m.MachineAcceptedCAs, &x509.PEMEncodedCertificate{Crt: ca})
	})
}

// swapTalos issues from a CA and accepts another one. Workers do not get the key.
func swapTalos(controlPlane bool, ca *x509.PEMEncodedCertificateAndKey, accepted ...[]byte) change {
	return security(func(m *v1alpha1.MachineConfig) {
		m.MachineCA = &x509.PEMEncodedCertificateAndKey{Crt: ca.Crt}
		if controlPlane {
			m.MachineCA.Key = ca.Key
		}
		m.MachineAcceptedCAs = nil
		for _, crt := range accepted {
			m.MachineAcceptedCAs = append(m.MachineAcceptedCAs, &x509.PEMEncodedCertificate{Crt: crt})
		}
	})
}

// reconfigure applies changes to a node's config through its Talos API.
func reconfigure(t *testing.T, api *client.Client, n *sim.Node, changes ...change) {
	t.Helper()
	g := NewWithT(t)
	c, _ := n.Config()
	for _, change := range changes {
		var err error
		c, err = change(c)
		g.Expect(err).NotTo(HaveOccurred())
	}
	data, err := c.Bytes()
	g.Expect(err).NotTo(HaveOccurred())
	_, err = apply(within(t), api, &machineapi.ApplyConfigurationRequest{Data: data, Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT})
	g.Expect(err).NotTo(HaveOccurred())
}

func newTalosCA(t *testing.T) *x509.PEMEncodedCertificateAndKey {
	t.Helper()
	ca, err := talossecrets.NewTalosCA(time.Now())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return x509.NewCertificateAndKeyFromCertificateAuthority(ca)
}

func newKubernetesCA(t *testing.T) *x509.PEMEncodedCertificateAndKey {
	t.Helper()
	ca, err := talossecrets.NewKubernetesCA(time.Now(), config.TalosVersion1_13)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return x509.NewCertificateAndKeyFromCertificateAuthority(ca)
}

// talosconfigOf has a client certificate by one CA, and trusts another.
func talosconfigOf(t *testing.T, issuer *x509.PEMEncodedCertificateAndKey, trusted []byte, endpoint string) []byte {
	t.Helper()
	g := NewWithT(t)
	bundle := &talossecrets.Bundle{Clock: talossecrets.NewClock(), Certs: &talossecrets.Certs{OS: issuer}}
	pair, err := bundle.GenerateTalosAPIClientCertificateWithTTL(role.MakeSet(role.Admin), time.Hour)
	g.Expect(err).NotTo(HaveOccurred())
	data, err := clientconfig.NewConfig("test", []string{endpoint}, trusted, pair).Bytes()
	g.Expect(err).NotTo(HaveOccurred())
	return data
}

// reaches asks a node directly, over a new connection, with a certificate of one CA and trust in another.
func reaches(t *testing.T, n *sim.Node, issuer *x509.PEMEncodedCertificateAndKey, trusted []byte) error {
	t.Helper()
	_, err := versionOf(within(t), talosClient(t, talosconfigOf(t, issuer, trusted, n.Address())))
	return err
}

func talosCAOf(c *sim.Cluster) *x509.PEMEncodedCertificateAndKey {
	active, _ := c.Node("cp-1").Config()
	return active.Machine().Security().IssuingCA()
}

var bothVersions = []string{"v1.13.6", "v1.14.1"}

// Each pass changes what the servers show and whom they accept, on the machine that it has come to and on no other.
func TestTalosCAFollowsTheConfig(t *testing.T) {
	for _, version := range bothVersions {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 2, Workers: 1, TalosVersion: version})
			c := s.Cluster("a")
			admin := talosClient(t, c.Talosconfig(), c.Node("cp-1").Address())
			old, fresh := talosCAOf(c), newTalosCA(t)
			both := slices.Concat(old.Crt, fresh.Crt)
			direct := func(n *sim.Node) *client.Client { return talosClient(t, talosconfigOf(t, old, both, n.Address())) }
			g.Expect(versionOf(within(t), admin)).To(Equal(version))
			for _, n := range c.Nodes() {
				g.Expect(reaches(t, n, fresh, old.Crt)).To(haveCode(codes.Unavailable), "nobody knows the new CA")
			}
			for _, n := range c.Nodes() {
				reconfigure(t, direct(n), n, acceptTalos(fresh.Crt))
			}
			for _, n := range c.Nodes() {
				g.Expect(reaches(t, n, fresh, old.Crt)).To(Succeed())
				g.Expect(reaches(t, n, old, old.Crt)).To(Succeed())
			}
			for _, n := range c.Nodes() {
				reconfigure(t, direct(n), n, swapTalos(n.ControlPlane(), fresh, old.Crt))
				g.Expect(reaches(t, n, fresh, fresh.Crt)).To(Succeed())
				g.Expect(reaches(t, n, old, fresh.Crt)).To(Succeed(), "the old clients are accepted")
				g.Expect(reaches(t, n, old, old.Crt)).To(MatchError(ContainSubstring("unknown authority")))
				if n.Name() == "cp-2" {
					g.Expect(reaches(t, c.Node("worker-1"), old, old.Crt)).To(Succeed(), "a worker asks for a certificate when its own config changes")
				}
			}
			g.Expect(versionOf(client.WithNode(within(t), c.Node("worker-1").Address()), admin)).To(Equal(version), "over a connection of before")
			for _, n := range c.Nodes() {
				reconfigure(t, direct(n), n, swapTalos(n.ControlPlane(), fresh))
				g.Expect(reaches(t, n, fresh, fresh.Crt)).To(Succeed())
				g.Expect(reaches(t, n, old, fresh.Crt)).To(haveCode(codes.Unavailable))
			}
			through := talosClient(t, talosconfigOf(t, fresh, fresh.Crt, c.Node("cp-1").Address()))
			for _, n := range c.Nodes() {
				g.Expect(versionOf(client.WithNode(within(t), n.Address()), through)).To(Equal(version), "control planes pass calls on")
			}
			resp, err := through.GenerateClientConfiguration(within(t), &machineapi.GenerateClientConfigurationRequest{Roles: []string{"os:reader"}, CrtTtl: durationpb.New(time.Hour)})
			g.Expect(err).NotTo(HaveOccurred())
			_, err = versionOf(within(t), talosClient(t, resp.GetMessages()[0].GetTalosconfig(), c.Node("cp-2").Address()))
			g.Expect(err).NotTo(HaveOccurred())
		})
	}
}

// A worker that was given a CA which no control plane issues from keeps what it has, says why, and does not come back from a reboot
// before it is helped.
func TestWorkerWithAnotherCA(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, Workers: 1})
	c := s.Cluster("a")
	old, fresh, w := talosCAOf(c), newTalosCA(t), c.Node("worker-1")
	api := talosClient(t, c.Talosconfig(), w.Address())
	reconfigure(t, api, w, swapTalos(false, fresh))
	awaitEvent(t, s, w, "certificate-failed", 0)
	g.Expect(reaches(t, w, old, old.Crt)).To(Succeed())
	stream, err := api.MachineClient.Dmesg(within(t), &machineapi.DmesgRequest{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(everything(t, stream)).To(ContainSubstring("failed to sign API server CSR"))

	g.Expect(api.Reboot(within(t))).To(Succeed())
	awaitEvent(t, s, w, "ready", 0)
	g.Expect(reaches(t, w, old, old.Crt)).To(haveCode(codes.Unavailable), "apid waits for its certificate")
	reconfigure(t, talosClient(t, c.Talosconfig()), c.Node("cp-1"), swapTalos(true, fresh, old.Crt))
	g.Eventually(func() error { return reaches(t, w, fresh, fresh.Crt) }).Should(Succeed())
	g.Expect(reaches(t, w, old, fresh.Crt)).To(Succeed(), "it accepts what the control plane accepts")
}

func everything(t *testing.T, stream interface{ Recv() (*common.Data, error) }) string {
	t.Helper()
	var text []byte
	for {
		data, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return string(text)
		}
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		text = append(text, data.GetBytes()...)
	}
}

func readFile(t *testing.T, api *client.Client, path string) string {
	t.Helper()
	stream, err := api.MachineClient.Read(within(t), &machineapi.ReadRequest{Path: path})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return everything(t, stream)
}

func TestSecretResources(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	c := s.Cluster("small")
	cp, w := talosClient(t, c.Talosconfig()), talosClient(t, c.Talosconfig(), c.Node("worker-1").Address())
	os, err := safe.StateGetByID[*resources.OSRoot](within(t), cp.COSI, resources.OSRootID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.TypedSpec().IssuingCA.Key).To(Equal(talosCAOf(c).Key))
	os, err = safe.StateGetByID[*resources.OSRoot](within(t), w.COSI, resources.OSRootID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.TypedSpec().IssuingCA).To(BeNil(), "workers have no key")
	g.Expect(os.TypedSpec().AcceptedCAs).To(HaveLen(1))
	root, err := safe.StateGetByID[*resources.KubernetesRoot](within(t), cp.COSI, resources.KubernetesRootID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(root.TypedSpec().ServiceAccount.Key).NotTo(BeEmpty())
	_, err = safe.StateGetByID[*resources.KubernetesRoot](within(t), w.COSI, resources.KubernetesRootID)
	g.Expect(err).To(Satisfy(state.IsNotFoundError))
	certificates, err := safe.StateGetByID[*resources.KubernetesDynamicCerts](within(t), cp.COSI, resources.KubernetesDynamicCertsID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(certificates.TypedSpec().APIServer.Crt)).To(Equal(readFile(t, cp, secrets.APIServer)))
	status, err := safe.StateGetByID[*k8s.SecretsStatus](within(t), cp.COSI, k8s.StaticPodSecretsStaticPodID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status.TypedSpec().Version).To(Equal("1"))
	g.Expect(readFile(t, w, secrets.KubeletClient)).To(ContainSubstring("BEGIN CERTIFICATE"))

	reader, err := c.TalosconfigFor("os:reader")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = safe.StateGetByID[*resources.OSRoot](within(t), talosClient(t, reader).COSI, resources.OSRootID)
	g.Expect(err).To(haveCode(codes.PermissionDenied))
	stream, err := talosClient(t, reader).MachineClient.Read(within(t), &machineapi.ReadRequest{Path: secrets.APIServer})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = stream.Recv()
	g.Expect(err).To(haveCode(codes.PermissionDenied))
}

// kubeAt is a client of one API server. Without a CA it trusts the one of the kubeconfig.
func kubeAt(t *testing.T, c *sim.Cluster, kubeconfig []byte, node string, trusted []byte) *kubernetes.Clientset {
	t.Helper()
	g := NewWithT(t)
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	g.Expect(err).NotTo(HaveOccurred())
	config.QPS = -1
	config.Host = "https://" + c.Node(node).Address() + ":6443"
	if trusted != nil {
		config.CAData = trusted
	}
	k, err := kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	return k
}

func listNodes(k *kubernetes.Clientset) error {
	_, err := k.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	return err
}

// serves waits until an API server answers, however.
func serves(t *testing.T, c *sim.Cluster, node string) {
	t.Helper()
	NewWithT(t).Eventually(func() error {
		conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", c.Node(node).Address()+":6443") // Only whether it serves.
		if err == nil {
			_ = conn.Close()
		}
		return err
	}).Should(Succeed())
}

// showsCA says whether the CA has issued the certificate that an API server shows.
func showsCA(t *testing.T, c *sim.Cluster, node string, ca []byte) error {
	t.Helper()
	pool := stdx509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: pool}}).DialContext(t.Context(), "tcp", c.Node(node).Address()+":6443")
	if err == nil {
		_ = conn.Close()
	}
	return err
}

func readiness(k *kubernetes.Clientset, name string) corev1.ConditionStatus {
	node, err := k.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return corev1.ConditionStatus(err.Error())
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return ""
}

// The Kubernetes CA is swapped in three passes; kubelets ask for another certificate in the last one, and an old kubeconfig works until
// then and no longer.
func TestKubernetesCAFollowsTheConfig(t *testing.T) {
	for _, version := range bothVersions {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 2, Workers: 1, TalosVersion: version})
			c := s.Cluster("a")
			api := func(n *sim.Node) *client.Client { return talosClient(t, c.Talosconfig(), n.Address()) }
			active, _ := c.Node("cp-1").Config()
			old, fresh := active.K8sAPIServerCAConfig().IssuingCA(), newKubernetesCA(t)
			first := readFile(t, api(c.Node("worker-1")), secrets.KubeletClient)
			pass := func(changes ...change) {
				for _, n := range c.Nodes() {
					reconfigure(t, api(n), n, changes...)
					if n.ControlPlane() {
						serves(t, c, n.Name())
					}
				}
			}
			pass(rotatepatcher.K8sAddAcceptedCA(fresh.Crt))
			g.Eventually(func() error { return showsCA(t, c, "cp-1", old.Crt) }).Should(Succeed())
			g.Expect(readFile(t, api(c.Node("cp-1")), secrets.ClientCA)).To(ContainSubstring(string(fresh.Crt)))
			pass(rotatepatcher.K8sDeleteAcceptedCA(fresh.Crt), rotatepatcher.K8sAddAcceptedCA(old.Crt), rotatepatcher.K8sSetCA(fresh))
			for _, name := range []string{"cp-1", "cp-2"} {
				g.Eventually(func() error { return showsCA(t, c, name, fresh.Crt) }).Should(Succeed())
				g.Eventually(func() error { return showsCA(t, c, name, old.Crt) }).Should(MatchError(ContainSubstring("unknown authority")))
				g.Eventually(func() error { return listNodes(kubeAt(t, c, c.Kubeconfig(), name, fresh.Crt)) }).Should(Succeed(), "old certificates are accepted")
			}
			g.Expect(readFile(t, api(c.Node("worker-1")), secrets.KubeletClient)).To(Equal(first))
			kubeconfig, err := api(c.Node("cp-1")).Kubeconfig(within(t))
			g.Expect(err).NotTo(HaveOccurred())
			pass(rotatepatcher.K8sDeleteAcceptedCA(old.Crt), rotatepatcher.K8sSetCA(fresh))
			for _, name := range []string{"cp-1", "cp-2"} {
				k := kubeAt(t, c, kubeconfig, name, fresh.Crt)
				g.Eventually(func() error { return listNodes(k) }).Should(Succeed())
				g.Eventually(func() bool { return apierrors.IsUnauthorized(listNodes(kubeAt(t, c, c.Kubeconfig(), name, fresh.Crt))) }).Should(BeTrue())
				for _, n := range c.Nodes() {
					g.Eventually(func() corev1.ConditionStatus { return readiness(k, n.Name()) }).Should(Equal(corev1.ConditionTrue), n.Name())
				}
			}
			g.Expect(readFile(t, api(c.Node("worker-1")), secrets.KubeletClient)).NotTo(Equal(first))
			k := kubeAt(t, c, kubeconfig, "cp-1", fresh.Crt)
			g.Eventually(func() string {
				pod, err := k.CoreV1().Pods("kube-system").Get(t.Context(), "kube-apiserver-cp-1", metav1.GetOptions{})
				if err != nil {
					return err.Error()
				}
				return pod.Annotations[constants.AnnotationStaticPodSecretsVersion]
			}).Should(Equal("4"))
		})
	}
}

// A worker that was forgotten when the old CA was dropped is let in nowhere, until its config follows.
func TestKubeletLockedOut(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, Workers: 1})
	c := s.Cluster("a")
	cp, w := c.Node("cp-1"), c.Node("worker-1")
	api := func(n *sim.Node) *client.Client { return talosClient(t, c.Talosconfig(), n.Address()) }
	fresh := newKubernetesCA(t)
	reconfigure(t, api(cp), cp, rotatepatcher.K8sSetCA(fresh))
	kubeconfig, err := api(cp).Kubeconfig(within(t))
	g.Expect(err).NotTo(HaveOccurred())
	k := kubeAt(t, c, kubeconfig, "cp-1", fresh.Crt)
	g.Eventually(func() corev1.ConditionStatus { return readiness(k, "worker-1") }, "5s").Should(Equal(corev1.ConditionUnknown))
	reconfigure(t, api(w), w, rotatepatcher.K8sSetCA(fresh))
	g.Eventually(func() corev1.ConditionStatus { return readiness(k, "worker-1") }, "5s").Should(Equal(corev1.ConditionTrue))
}

// keyIDs are the names of the keys that an API server shows.
func keyIDs(t *testing.T, k *kubernetes.Clientset) []string {
	t.Helper()
	g := NewWithT(t)
	data, err := k.RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(within(t))
	if err != nil {
		return nil // It is being restarted.
	}
	var set struct {
		Keys []struct {
			ID string `json:"kid"`
		} `json:"keys"`
	}
	g.Expect(json.Unmarshal(data, &set)).To(Succeed())
	var ids []string
	for _, key := range set.Keys {
		ids = append(ids, key.ID)
	}
	return ids
}

func tokenOf(t *testing.T, k *kubernetes.Clientset) string {
	t.Helper()
	resp, err := k.CoreV1().ServiceAccounts("default").CreateToken(within(t), "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return resp.Status.Token
}

func accepts(t *testing.T, k *kubernetes.Clientset, token string) bool {
	t.Helper()
	review, err := k.AuthenticationV1().TokenReviews().Create(within(t), &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	if review.Status.Authenticated {
		NewWithT(t).Expect(review.Status.User.Username).To(Equal("system:serviceaccount:default:robot"))
	}
	return review.Status.Authenticated
}

// account changes the key that signs tokens and the others that are accepted.
func account(private []byte, accepted ...[]byte) change {
	return func(c config.Provider) (config.Provider, error) {
		return container.PatchDocument(c, func(doc *k8sconfig.KubeServiceAccountConfigV1Alpha1) error {
			if private != nil {
				doc.ServiceIssuer.PrivateKey = string(private)
			}
			doc.ServiceAccepted.PublicKeys = nil
			for _, key := range accepted {
				doc.ServiceAccepted.PublicKeys = append(doc.ServiceAccepted.PublicKeys, string(key))
			}
			return nil
		})
	}
}

func TestServiceAccountKeysFollowTheConfig(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 2, TalosVersion: "v1.14.1"})
	c := s.Cluster("a")
	at := func(name string) *kubernetes.Clientset { return kubeAt(t, c, c.Kubeconfig(), name, nil) }
	one, two := at("cp-1"), at("cp-2")
	_, err := one.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	before := tokenOf(t, one)
	g.Expect(accepts(t, two, before)).To(BeTrue())
	g.Expect(accepts(t, two, before[:len(before)-4]+"AAAA")).To(BeFalse())
	config := rest.AnonymousClientConfig(restConfig(t, c))
	config.BearerToken = before
	robot, err := kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(listNodes(robot)).To(Succeed())
	first := keyIDs(t, one)
	g.Expect(first).To(HaveLen(1))

	active, _ := c.Node("cp-1").Config()
	old := active.K8sServiceAccountConfig().AcceptedKeys()[0].Key
	fresh, err := x509.NewECDSAKey()
	g.Expect(err).NotTo(HaveOccurred())
	pass := func(name string, keys int, change change) {
		n := c.Node(name)
		reconfigure(t, talosClient(t, c.Talosconfig(), n.Address()), n, change)
		g.Eventually(func() []string { return keyIDs(t, at(name)) }).Should(HaveLen(keys))
	}
	for _, name := range []string{"cp-1", "cp-2"} {
		pass(name, 2, account(nil, fresh.GetPublicKeyPEM()))
	}
	reconfigure(t, talosClient(t, c.Talosconfig(), c.Node("cp-1").Address()), c.Node("cp-1"), account(fresh.GetPrivateKeyPEM(), old))
	g.Eventually(func() []string { return keyIDs(t, at("cp-1")) }).Should(HaveExactElements(Not(Equal(first[0])), Equal(first[0])))
	after := tokenOf(t, at("cp-1"))
	g.Expect(accepts(t, at("cp-2"), after)).To(BeTrue(), "accepted where the new key signs nothing yet")
	g.Expect(accepts(t, at("cp-1"), before)).To(BeTrue())
	for _, name := range []string{"cp-2", "cp-1"} {
		pass(name, 1, account(fresh.GetPrivateKeyPEM()))
		g.Expect(accepts(t, at(name), after)).To(BeTrue())
		g.Expect(accepts(t, at(name), before)).To(BeFalse(), "the old key is gone")
	}
	g.Eventually(func() bool { return apierrors.IsUnauthorized(listNodes(robot)) }).Should(BeTrue())
}

// encryption encrypts with the first of some keys of secretbox, and reads with all.
func encryption(names ...string) change {
	return func(c config.Provider) (config.Provider, error) {
		return container.PatchDocument(c, func(doc *k8sconfig.KubeEtcdEncryptionConfigV1Alpha1) error {
			var keys []any
			for _, name := range names {
				secret := base64.StdEncoding.EncodeToString([]byte(name + "0123456789abcdef0123456789abcdef")[:32])
				keys = append(keys, map[string]any{"name": name, "secret": secret})
			}
			doc.Config.Object = map[string]any{"resources": []any{map[string]any{
				"resources": []any{"secrets"}, "providers": []any{map[string]any{"secretbox": map[string]any{"keys": keys}}},
			}}}
			return nil
		})
	}
}

// Secrets remember with which key they were written, an update without changes writes them anew, and without its key no server can
// read one.
func TestEncryptionFollowsTheConfig(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	s := startWith(t, sim.Options{Dir: dir, Speed: fast, Clusters: []sim.ClusterSpec{{Name: "a", ControlPlanes: 1, TalosVersion: "v1.14.1"}}})
	c := s.Cluster("a")
	k, n := kubeClient(t, c), c.Node("cp-1")
	keyOf := func() string { return c.Secrets()["default/one"].Prefix }
	made, err := k.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(keyOf()).To(Equal("k8s:enc:secretbox:v1:key2:"))
	same, err := k.CoreV1().Secrets("default").Update(t.Context(), made, metav1.UpdateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(same.ResourceVersion).To(Equal(made.ResourceVersion), "nothing to write")

	encrypt := func(keys ...string) {
		reconfigure(t, talosClient(t, c.Talosconfig()), n, encryption(keys...))
		g.Eventually(func() error { return listNodes(k) }).Should(Succeed())
	}
	encrypt("key3")
	g.Eventually(func() error {
		_, err := k.CoreV1().Secrets("default").Get(t.Context(), "one", metav1.GetOptions{})
		return err
	}).
		Should(MatchError(ContainSubstring("unable to transform key")))
	_, err = k.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
	g.Expect(err).To(MatchError(ContainSubstring("unable to transform key")))
	two, err := k.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "two"}}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	encrypt("key4", "key3")
	g.Eventually(func() string {
		now, err := k.CoreV1().Secrets("default").Update(t.Context(), two, metav1.UpdateOptions{})
		if err != nil {
			return err.Error()
		}
		return now.ResourceVersion
	}).ShouldNot(Equal(two.ResourceVersion), "written anew with the new key")
	g.Expect(c.Secrets()["default/two"].Prefix).To(Equal("k8s:enc:secretbox:v1:key4:"))
	socket, err := control.Open(dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(socket.Secrets(t.Context(), "a")).To(Equal(c.Secrets()))
}

// The container starts before the files are written, and works with the old ones until it is started again.
func TestLateSecrets(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, TalosVersion: "v1.14.1"})
	c := s.Cluster("a")
	k, n, api := kubeClient(t, c), c.Node("cp-1"), talosClient(t, c.Talosconfig())
	order(t, s, 1, fault.SecretsLate, "cp-1", fault.ParamDelay, "20ms")
	reconfigure(t, api, n, encryption("key3"))
	g.Eventually(func() string { return readFile(t, api, secrets.EncryptionConfig) }).Should(ContainSubstring("name: key3"))
	create := func(name string) string {
		g.Eventually(func() error {
			_, err := k.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) { // It was made, and the answer was lost with the server.
				return nil
			}
			return err
		}).Should(Succeed())
		return c.Secrets()["default/"+name].Prefix
	}
	g.Eventually(func() string {
		pod, err := k.CoreV1().Pods("kube-system").Get(t.Context(), "kube-apiserver-cp-1", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		return pod.Annotations[constants.AnnotationStaticPodSecretsVersion]
	}).Should(Equal("2"), "it was restarted")
	g.Expect(create("one")).To(Equal("k8s:enc:secretbox:v1:key2:"), "and has read the old file")
	list, err := api.MachineClient.List(within(t), &machineapi.ListRequest{Root: constants.KubernetesAPIServerSecretsDir})
	g.Expect(err).NotTo(HaveOccurred())
	info, err := list.Recv()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.GetModified()).To(BeNumerically(">", 0))

	g.Expect(api.Reboot(within(t))).To(Succeed())
	g.Eventually(func() string { return create("two-" + time.Now().Format("150405.000000000")) }, "10s").Should(Equal("k8s:enc:secretbox:v1:key3:"))
}

// What is ordered to stay as it is does so until the order ends.
func TestStaleSecrets(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1})
	c := s.Cluster("a")
	n, api := c.Node("cp-1"), talosClient(t, c.Talosconfig())
	old, fresh := talosCAOf(c), newTalosCA(t)
	id := order(t, s, 0, fault.SecretsStale, "cp-1", fault.ParamAPI, "talos")
	reconfigure(t, api, n, swapTalos(true, fresh, old.Crt))
	g.Expect(reaches(t, n, old, old.Crt)).To(Succeed())
	s.Clear(id)
	g.Expect(reaches(t, n, fresh, fresh.Crt)).To(Succeed())

	active, _ := n.Config()
	was, kubernetes := active.K8sAPIServerCAConfig().IssuingCA(), newKubernetesCA(t)
	api = talosClient(t, talosconfigOf(t, fresh, fresh.Crt, n.Address()))
	id = order(t, s, 0, fault.SecretsStale, "cp-1", fault.ParamAPI, "kube", fault.ParamPath, "*/apiserver.*")
	reconfigure(t, api, n, rotatepatcher.K8sAddAcceptedCA(was.Crt), rotatepatcher.K8sSetCA(kubernetes))
	serves(t, c, "cp-1")
	g.Eventually(func() error { return showsCA(t, c, "cp-1", was.Crt) }).Should(Succeed())
	g.Expect(readFile(t, api, constants.KubernetesControllerManagerSecretsDir+"/ca.crt")).To(Equal(string(kubernetes.Crt)), "the others follow")
	s.Clear(id)
	g.Eventually(func() error { return showsCA(t, c, "cp-1", kubernetes.Crt) }).Should(Succeed())

	id = order(t, s, 0, fault.SecretsStale, "", fault.ParamAPI, "kube")
	reconfigure(t, api, n, rotatepatcher.K8sDeleteAcceptedCA(was.Crt))
	g.Expect(readFile(t, api, secrets.ClientCA)).To(ContainSubstring(string(was.Crt)))
	s.Clear(id)
	g.Expect(readFile(t, api, secrets.ClientCA)).To(Equal(string(kubernetes.Crt)))
}
