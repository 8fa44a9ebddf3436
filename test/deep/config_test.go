// SPDX-License-Identifier: Apache-2.0

package deep_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"ichor.maesh.dev/hub/test/sim"
)

// patch changes the machine config of a machine without a reboot.
func patch(ctx context.Context, api *client.Client, n *sim.Node, text string) error {
	change, err := configpatcher.LoadPatch([]byte(text))
	if err != nil {
		return err
	}
	active, _ := n.Config()
	patched, err := configpatcher.Apply(configpatcher.WithConfig(active), []configpatcher.Patch{change})
	if err != nil {
		return err
	}
	data, err := patched.Bytes()
	if err != nil {
		return err
	}
	return apply(ctx, api, n, data)
}

func apply(ctx context.Context, api *client.Client, n *sim.Node, config []byte) error {
	_, err := api.ApplyConfiguration(at(ctx, n), &machineapi.ApplyConfigurationRequest{
		Data: config, Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
	})
	return err
}

// issuedBy is a way into a cluster with an administrator's certificate of another CA.
func issuedBy(t *testing.T, c *sim.Cluster, ca *x509.CertificateAuthority) *kubernetes.Clientset {
	t.Helper()
	g := NewWithT(t)
	pair, err := x509.NewKeyPair(ca, x509.CommonName("admin"), x509.Organization("system:masters"), x509.NotAfter(time.Now().Add(time.Hour)))
	g.Expect(err).NotTo(HaveOccurred())
	config, err := clientcmd.RESTConfigFromKubeConfig(c.Kubeconfig())
	g.Expect(err).NotTo(HaveOccurred())
	config.CertData, config.KeyData, config.Timeout = pair.CrtPEM, pair.KeyPEM, 10*time.Second
	k, err := kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	return k
}

func indented(pem []byte) string { return base64.StdEncoding.EncodeToString(pem) }

func TestDeepConfigChanges(t *testing.T) {
	g := NewWithT(t)
	cluster := start(t, options(t, t.TempDir(), sim.ClusterSpec{Name: "c", ControlPlanes: 1, Workers: 1})).Cluster("c")
	k, api, ctx := kubeClient(t, cluster), talosClient(t, cluster), within(t)
	only := cluster.Nodes()[0]
	listNodes := func(k *kubernetes.Clientset) error {
		_, err := k.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err
	}
	restarted := func(change string) {
		t.Helper()
		before := cluster.Processes("cp-1")["kube-apiserver"]
		g.Expect(patch(ctx, api, only, change)).To(Succeed())
		g.Eventually(ctx, func() int { return cluster.Processes("cp-1")["kube-apiserver"] }).WithPolling(poll).ShouldNot(Or(BeZero(), Equal(before)))
		g.Eventually(ctx, listNodes).WithArguments(k).WithPolling(poll).Should(Succeed())
	}

	// Another CA's clients are let in when that is accepted.
	ca, err := x509.NewSelfSignedCertificateAuthority(x509.Organization("kubernetes"), x509.ECDSA(true))
	g.Expect(err).NotTo(HaveOccurred())
	theirs := issuedBy(t, cluster, ca)
	g.Expect(listNodes(theirs)).To(MatchError(ContainSubstring("nauthorized")))
	restarted("cluster:\n  acceptedCAs:\n    - crt: " + indented(ca.CrtPEM))
	g.Eventually(ctx, listNodes).WithArguments(theirs).WithPolling(poll).Should(Succeed())
	g.Eventually(ctx, readyNodes).WithArguments(ctx, k).WithPolling(poll).Should(ConsistOf("cp-1", "worker-1"))

	// Another key of service accounts: the old tokens are void, and the new key is published.
	token := tokenOf(ctx, t, k)
	g.Expect(authenticates(ctx, k, token)).To(BeTrue())
	before := publishedKeys(ctx, t, k)
	key, err := x509.NewECDSAKey()
	g.Expect(err).NotTo(HaveOccurred())
	restarted("cluster:\n  serviceAccount:\n    key: " + indented(key.KeyPEM))
	g.Eventually(ctx, authenticates).WithArguments(ctx, k, token).WithPolling(poll).Should(BeFalse())
	g.Expect(publishedKeys(ctx, t, k)).NotTo(ContainElements(before))
	g.Expect(authenticates(ctx, k, tokenOf(ctx, t, k))).To(BeTrue())
}

// The keys of Secrets are in a document of their own from Talos 1.14 on, which can hold several.
func TestDeepEncryptionKeys(t *testing.T) {
	g := NewWithT(t)
	cluster := start(t, options(t, t.TempDir(), sim.ClusterSpec{Name: "c", ControlPlanes: 1, TalosVersion: "v1.14.1"})).Cluster("c")
	k, api, ctx := kubeClient(t, cluster), talosClient(t, cluster), within(t)
	only := cluster.Nodes()[0]
	g.Expect(putSecret(ctx, k, "old")).To(Succeed())
	g.Expect(cluster.Secrets()).To(HaveKeyWithValue("default/old", HaveField("Prefix", "k8s:enc:secretbox:v1:key2:")))

	before := cluster.Processes("cp-1")["kube-apiserver"]
	g.Expect(addEncryptionKey(ctx, api, only, "key3")).To(Succeed())
	g.Eventually(ctx, func() int { return cluster.Processes("cp-1")["kube-apiserver"] }).WithPolling(poll).ShouldNot(Or(BeZero(), Equal(before)))
	g.Eventually(ctx, putSecret).WithArguments(ctx, k, "new").WithPolling(poll).Should(Succeed())
	g.Expect(cluster.Secrets()).To(And(
		HaveKeyWithValue("default/new", HaveField("Prefix", "k8s:enc:secretbox:v1:key3:")),
		HaveKeyWithValue("default/old", HaveField("Prefix", "k8s:enc:secretbox:v1:key2:")),
	))
	_, err := k.CoreV1().Secrets(metav1.NamespaceDefault).Get(ctx, "old", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred(), "the old key still opens what it has closed")
}

// addEncryptionKey puts another key before the present ones.
func addEncryptionKey(ctx context.Context, api *client.Client, n *sim.Node, name string) error {
	random := make([]byte, 32)
	_, _ = rand.Read(random)
	key := "- name: " + name + "\n  secret: " + base64.StdEncoding.EncodeToString(random) + "\n"
	active, _ := n.Config()
	text, err := active.Bytes()
	if err != nil {
		return err
	}
	found := encryptionKeys.FindSubmatch(text)
	if found == nil {
		return fmt.Errorf("no keys are in the config of %s", n.Name())
	}
	indent := string(found[2])
	added := indent + strings.ReplaceAll(strings.TrimSpace(key), "\n", "\n"+indent) + "\n"
	patched := encryptionKeys.ReplaceAllString(string(text), "${1}"+added+"${2}")
	return apply(ctx, api, n, []byte(patched))
}

// encryptionKeys is where the keys of a provider begin, up to the first one's indentation.
var encryptionKeys = regexp.MustCompile(`(secretbox:\n +keys:\n)( +)`)

func putSecret(ctx context.Context, k *kubernetes.Clientset, name string) error {
	_, err := k.CoreV1().Secrets(metav1.NamespaceDefault).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"a": "b"},
	}, metav1.CreateOptions{})
	return err
}

func tokenOf(ctx context.Context, t *testing.T, k *kubernetes.Clientset) string {
	t.Helper()
	g := NewWithT(t)
	request := &authenticationv1.TokenRequest{}
	g.Eventually(ctx, func() error {
		made, err := k.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(ctx, "default", request, metav1.CreateOptions{})
		if err == nil {
			request = made
		}
		return err
	}).WithPolling(poll).Should(Succeed())
	return request.Status.Token
}

func authenticates(ctx context.Context, k *kubernetes.Clientset, token string) (bool, error) {
	review, err := k.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Authenticated, nil
}

// publishedKeys are the IDs of the keys that the API server publishes.
func publishedKeys(ctx context.Context, t *testing.T, k *kubernetes.Clientset) []string {
	t.Helper()
	g := NewWithT(t)
	text, err := k.Discovery().RESTClient().(*rest.RESTClient).Get().AbsPath("/openid/v1/jwks").DoRaw(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	var list struct {
		Keys []struct {
			ID string `json:"kid"`
		} `json:"keys"`
	}
	g.Expect(json.Unmarshal(text, &list)).To(Succeed(), string(text))
	var ids []string
	for _, key := range list.Keys {
		ids = append(ids, key.ID)
	}
	return ids
}
