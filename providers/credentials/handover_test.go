// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"bytes"
	"context"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/siderolabs/crypto/x509"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/guard"
)

// someone is whom the client certificates name.
var someone = pkix.Name{CommonName: "admin", Organization: []string{"os:admin"}}

// rotated are an old and a new authority, with a client of each.
type rotated struct{ old, fresh, oldClient, newClient KeyPair }

func rotate(g *WithT) rotated {
	var r rotated
	var err error
	now := time.Now()
	for _, made := range []*KeyPair{&r.old, &r.fresh} {
		*made, err = NewAuthority(v1alpha1.KubernetesCA, now)
		g.Expect(err).NotTo(HaveOccurred())
	}
	r.oldClient, err = r.old.Client(someone, now)
	g.Expect(err).NotTo(HaveOccurred())
	r.newClient, err = r.fresh.Client(someone, now)
	g.Expect(err).NotTo(HaveOccurred())
	return r
}

func (r rotated) both() Handover {
	known := [][]byte{r.old.Certificate, r.fresh.Certificate}
	return Handover{Known: known, Trust: known, Client: r.oldClient}
}

func (r rotated) new() Handover {
	return Handover{Known: [][]byte{r.old.Certificate, r.fresh.Certificate}, Trust: [][]byte{r.fresh.Certificate}, Client: r.newClient}
}

func (r rotated) talosconfig(g *WithT) []byte {
	config := clientconfig.NewConfig("c1", []string{"10.0.0.1"}, r.old.Certificate, &x509.PEMEncodedCertificateAndKey{Crt: r.oldClient.Certificate, Key: r.oldClient.Key})
	config.Contexts["other"] = &clientconfig.Context{Endpoints: []string{"10.9.9.9"}, CA: "eA==", Crt: "eA==", Key: "eA=="}
	data, err := config.Bytes()
	g.Expect(err).NotTo(HaveOccurred())
	return data
}

// Talosconfigs trust what is handed over, and are of whom it says. Other contexts stay.
func TestHandoverOfATalosconfig(t *testing.T) {
	g := NewWithT(t)
	r := rotate(g)
	before := r.talosconfig(g)

	between, err := r.both().Talosconfig(before, c1)
	g.Expect(err).NotTo(HaveOccurred())
	parsed, err := ParseTalosconfig(between, "", "c1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(parsed.Check(time.Now())).To(BeNil())
	g.Expect(strings.Count(mustDecode(g, parsed.Context.CA), "BEGIN CERTIFICATE")).To(Equal(2))
	g.Expect(TalosClient(parsed.Context)).To(Equal(r.oldClient))
	g.Expect(r.both().Talosconfig(between, c1)).To(Equal(between), "again it is the same")

	after, err := r.new().Talosconfig(between, c1)
	g.Expect(err).NotTo(HaveOccurred())
	parsed, err = ParseTalosconfig(after, "", "c1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(parsed.Check(time.Now())).To(BeNil())
	g.Expect(TalosClient(parsed.Context)).To(Equal(r.newClient))
	g.Expect(strings.TrimSpace(mustDecode(g, parsed.Context.CA))).To(Equal(strings.TrimSpace(string(r.fresh.Certificate))))
	file, err := clientconfig.FromBytes(after)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(file.Contexts["other"].Endpoints).To(Equal([]string{"10.9.9.9"}))

	_, err = r.new().Talosconfig([]byte("contexts: {}"), c1)
	g.Expect(err).To(MatchError(ErrInvalid))
}

func mustDecode(g *WithT, text string) string {
	data, err := base64.StdEncoding.DecodeString(text)
	g.Expect(err).NotTo(HaveOccurred())
	return string(data)
}

func (r rotated) kubeconfig(g *WithT, change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte {
	cluster := &clientcmdapi.Cluster{Server: "https://10.0.0.1:6443", CertificateAuthorityData: r.old.Certificate}
	user := &clientcmdapi.AuthInfo{ClientCertificateData: r.oldClient.Certificate, ClientKeyData: r.oldClient.Key}
	change(cluster, user)
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c1": cluster}, AuthInfos: map[string]*clientcmdapi.AuthInfo{"admin": user},
		Contexts: map[string]*clientcmdapi.Context{"admin@c1": {Cluster: "c1", AuthInfo: "admin"}}, CurrentContext: "admin@c1",
	})
	g.Expect(err).NotTo(HaveOccurred())
	return data
}

func TestHandoverOfAKubeconfig(t *testing.T) {
	g := NewWithT(t)
	r := rotate(g)
	stranger := rotate(g)
	oldOnly := strings.TrimSpace(string(r.old.Certificate))
	for name, row := range map[string]struct {
		change  func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)
		trusted func(string) bool
		client  func(*clientcmdapi.AuthInfo) bool
	}{
		"with a client certificate": {
			func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo) {},
			func(ca string) bool { return ca == strings.TrimSpace(string(r.fresh.Certificate)) },
			func(u *clientcmdapi.AuthInfo) bool {
				return bytes.Equal(u.ClientCertificateData, r.newClient.Certificate)
			},
		},
		"with a token, which another key signs": {
			func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { *u = clientcmdapi.AuthInfo{Token: "t"} },
			func(ca string) bool { return ca == strings.TrimSpace(string(r.fresh.Certificate)) },
			func(u *clientcmdapi.AuthInfo) bool { return u.Token == "t" && len(u.ClientCertificateData) == 0 },
		},
		"behind a load balancer of another authority": {
			func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
				c.CertificateAuthorityData = stranger.old.Certificate
			},
			func(ca string) bool { return ca == strings.TrimSpace(string(stranger.old.Certificate)) },
			func(u *clientcmdapi.AuthInfo) bool {
				return bytes.Equal(u.ClientCertificateData, r.newClient.Certificate)
			},
		},
		"that trusts others as well": {
			func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
				c.CertificateAuthorityData = append(append([]byte{}, stranger.old.Certificate...), r.old.Certificate...)
			},
			func(ca string) bool {
				return strings.Contains(ca, strings.TrimSpace(string(stranger.old.Certificate))) && !strings.Contains(ca, oldOnly)
			},
			func(u *clientcmdapi.AuthInfo) bool {
				return bytes.Equal(u.ClientCertificateData, r.newClient.Certificate)
			},
		},
		"with a client certificate of another authority": {
			func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
				u.ClientCertificateData, u.ClientKeyData = stranger.oldClient.Certificate, stranger.oldClient.Key
			},
			func(ca string) bool { return ca == strings.TrimSpace(string(r.fresh.Certificate)) },
			func(u *clientcmdapi.AuthInfo) bool {
				return bytes.Equal(u.ClientCertificateData, stranger.oldClient.Certificate)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			between, err := r.both().Kubeconfig(r.kubeconfig(g, row.change))
			g.Expect(err).NotTo(HaveOccurred())
			after, err := r.new().Kubeconfig(between)
			g.Expect(err).NotTo(HaveOccurred())
			file, err := clientcmd.Load(after)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(row.trusted(strings.TrimSpace(string(file.Clusters["c1"].CertificateAuthorityData)))).To(BeTrue())
			g.Expect(row.client(file.AuthInfos["admin"])).To(BeTrue())
			g.Expect(r.new().Kubeconfig(after)).To(Equal(after), "again it is the same")
		})
	}
	_, err := r.new().Kubeconfig([]byte("kind: Config\ncurrent-context: x\n"))
	g.Expect(err).To(MatchError(ErrInvalid))
}

func scheme(g *WithT) *runtime.Scheme {
	s := runtime.NewScheme()
	g.Expect(corev1.AddToScheme(s)).To(Succeed())
	g.Expect(v1alpha1.AddToScheme(s)).To(Succeed())
	return s
}

// allowed is a context in which writes are allowed.
func allowed(t *testing.T) context.Context {
	return guard.With(t.Context(), func(context.Context) error { return nil })
}

// A write asks the guard, keeps what is not its own, and is none where nothing changes.
func TestKeeperWrites(t *testing.T) {
	g := NewWithT(t)
	r := rotate(g)
	made := secret("c1-talosconfig", "talosconfig", r.talosconfig(g))
	made.Data["other"] = []byte("stays")
	made.Labels = map[string]string{"somebody": "else"}
	c := fake.NewClientBuilder().WithScheme(scheme(g)).WithObjects(made).Build()
	k := &Keeper{Client: c, Live: c}
	g.Expect(k.HandOver(t.Context(), c1, v1alpha1.TalosCA, r.new())).To(MatchError(guard.ErrNotAllowed))
	refused := guard.With(t.Context(), func(context.Context) error { return errors.New("another one leads") })
	g.Expect(k.HandOver(refused, c1, v1alpha1.TalosCA, r.new())).To(MatchError(guard.ErrNotAllowed))

	g.Expect(k.HandOver(allowed(t), c1, v1alpha1.TalosCA, r.new())).To(Succeed())
	found := &corev1.Secret{}
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(made), found)).To(Succeed())
	g.Expect(found.Data).To(HaveKeyWithValue("other", []byte("stays")))
	g.Expect(found.Labels).To(Equal(map[string]string{"somebody": "else"}))
	parsed, err := ParseTalosconfig(found.Data["talosconfig"], "", "c1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(TalosClient(parsed.Context)).To(Equal(r.newClient))
	version := found.ResourceVersion
	g.Expect(k.HandOver(t.Context(), c1, v1alpha1.TalosCA, r.new())).To(Succeed(), "nothing is written, and nobody asked")
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(made), found)).To(Succeed())
	g.Expect(found.ResourceVersion).To(Equal(version))

	g.Expect(k.HandOver(allowed(t), c1, v1alpha1.KubernetesCA, r.new())).To(MatchError(ErrMissing))
	g.Expect(k.ReplaceKubernetesAuthority(allowed(t), c1.NamespacedName, r.fresh)).To(Succeed(), "nobody keeps one")
}

// A Secret is made once: what is there stays.
func TestKeeperCreatesOnce(t *testing.T) {
	g := NewWithT(t)
	c := fake.NewClientBuilder().WithScheme(scheme(g)).Build()
	k := &Keeper{Client: c, Live: c}
	key := types.NamespacedName{Namespace: "default", Name: "kept"}
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "o", UID: "u"}
	g.Expect(k.Create(t.Context(), key, "c1", owner, map[string][]byte{"a": []byte("1")})).To(MatchError(guard.ErrNotAllowed))
	g.Expect(k.Create(allowed(t), key, "c1", owner, map[string][]byte{"a": []byte("1")})).To(Succeed())
	g.Expect(k.Create(allowed(t), key, "c1", owner, map[string][]byte{"a": []byte("2")})).To(Succeed())
	g.Expect(k.Read(t.Context(), key)).To(Equal(map[string][]byte{"a": []byte("1")}))
	found := &corev1.Secret{}
	g.Expect(c.Get(t.Context(), key, found)).To(Succeed())
	g.Expect(found.Labels).To(HaveKeyWithValue("cluster.x-k8s.io/cluster-name", "c1"))
	g.Expect(found.OwnerReferences).To(Equal([]metav1.OwnerReference{owner}))
	g.Expect(k.Delete(t.Context(), key)).To(MatchError(guard.ErrNotAllowed))
	g.Expect(k.Delete(allowed(t), key)).To(Succeed())
	g.Expect(k.Delete(allowed(t), key)).To(Succeed())
	_, err := k.Read(t.Context(), key)
	g.Expect(err).To(MatchError(ErrMissing))
}

// Both forms of a bundle are renewed in place, and the TalosCluster says that a backup is stale.
func TestReplaceBundle(t *testing.T) {
	g := NewWithT(t)
	r := rotate(g)
	bundle, err := secrets.NewBundle(secrets.NewClock(), nil, secrets.WithECDSAServiceAccountKey())
	g.Expect(err).NotTo(HaveOccurred())
	for name, legacy := range map[string]bool{"one key": false, "a key for each part": true} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			data := map[string][]byte{}
			if legacy {
				data[oldCertsKey] = []byte("x")
			}
			g.Expect(putBundle(data, bundle)).To(Succeed())
			cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"}}
			c := fake.NewClientBuilder().WithScheme(scheme(g)).WithObjects(cluster,
				&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1-talos"}, Data: data}).Build()
			same := func(*secrets.Bundle) error { return nil }
			g.Expect(ReplaceBundle(t.Context(), c, c1.NamespacedName, same)).To(Succeed(), "a change that changes nothing is none")
			g.Expect(c.Get(t.Context(), c1.NamespacedName, cluster)).To(Succeed())
			g.Expect(cluster.Annotations).To(BeEmpty())

			change := func(b *secrets.Bundle) error {
				b.Certs.K8s = &x509.PEMEncodedCertificateAndKey{Crt: r.fresh.Certificate, Key: r.fresh.Key}
				return nil
			}
			g.Expect(ReplaceBundle(t.Context(), c, c1.NamespacedName, change)).To(MatchError(guard.ErrNotAllowed))
			g.Expect(ReplaceBundle(allowed(t), c, c1.NamespacedName, change)).To(Succeed())
			g.Expect(c.Get(t.Context(), c1.NamespacedName, cluster)).To(Succeed())
			g.Expect(cluster.Annotations).To(HaveKey("ichor.maesh.dev/bundle-changed-at"))
			found := &corev1.Secret{}
			g.Expect(c.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "c1-talos"}, found)).To(Succeed())
			_, whole := found.Data["bundle"]
			g.Expect(whole).To(Equal(!legacy))
			parsed, err := ParseBundle(found.Data)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(parsed.Certs.K8s.Key).To(Equal(r.fresh.Key))
			g.Expect(parsed.Certs.OS).To(Equal(bundle.Certs.OS), "the rest stays")
			g.Expect(parsed.Secrets.BootstrapToken).To(Equal(bundle.Secrets.BootstrapToken))
		})
	}
	// Who exports after the first mark and before the write has an old bundle, and is told so.
	data := map[string][]byte{}
	g.Expect(putBundle(data, bundle)).To(Succeed())
	cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"}}
	exported := ""
	c := fake.NewClientBuilder().WithScheme(scheme(g)).WithObjects(cluster, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1-talos"}, Data: data}).
		WithInterceptorFuncs(interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			found := &v1alpha1.TalosCluster{}
			g.Expect(c.Get(ctx, c1.NamespacedName, found)).To(Succeed())
			exported = found.Annotations["ichor.maesh.dev/bundle-changed-at"]
			return c.Update(ctx, o, options...)
		}}).Build()
	g.Expect(ReplaceBundle(allowed(t), c, c1.NamespacedName, func(b *secrets.Bundle) error {
		b.Certs.OS = &x509.PEMEncodedCertificateAndKey{Crt: r.fresh.Certificate, Key: r.fresh.Key}
		return nil
	})).To(Succeed())
	g.Expect(c.Get(t.Context(), c1.NamespacedName, cluster)).To(Succeed())
	g.Expect(exported).NotTo(BeEmpty())
	g.Expect(cluster.Annotations["ichor.maesh.dev/bundle-changed-at"]).NotTo(Equal(exported))

	none := fake.NewClientBuilder().WithScheme(scheme(g)).Build()
	g.Expect(ReplaceBundle(allowed(t), none, c1.NamespacedName, func(*secrets.Bundle) error { return nil })).To(MatchError(ErrMissing))
}

// What is no bundle is told without a word of what it is.
func TestBundlesThatAreNone(t *testing.T) {
	for name, row := range map[string]struct {
		data map[string][]byte
		want string
	}{
		"nothing":     {nil, `key "bundle" is missing`},
		"no YAML":     {map[string][]byte{"bundle": []byte("hunter2: [")}, `key "bundle" is invalid: it is no bundle of secrets`},
		"a text":      {map[string][]byte{"bundle": []byte("hunter2")}, `key "bundle" is invalid: it is no bundle of secrets`},
		"empty":       {map[string][]byte{"bundle": {}}, `key "bundle" is invalid: it is no bundle of secrets`},
		"part of one": {map[string][]byte{"certs": []byte("os: {}")}, "is invalid: it is no bundle of secrets"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseBundle(row.data)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(row.want)))
			NewWithT(t).Expect(err).NotTo(MatchError(ContainSubstring("hunter2")))
		})
	}
}
