// SPDX-License-Identifier: Apache-2.0

package secrets_test

import (
	stdx509 "crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/rotatepatcher"
	talossecrets "github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/k8s"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"k8s.io/client-go/tools/clientcmd"

	"ichor.maesh.dev/hub/test/sim/secrets"
)

// The two forms of a machine config.
const (
	older = "v1.13.6"
	newer = "v1.14.1"
)

var (
	controlPlane = secrets.Node{Name: "cp-1", Addresses: []string{"10.0.0.2", "fd00::2"}, ControlPlane: true, Shared: []string{"10.0.0.1"}}
	worker       = secrets.Node{Name: "worker-1", Addresses: []string{"10.0.0.10"}}
)

// made are the configs of one version.
type made struct {
	controlPlane, worker config.Provider
	bundle               *talossecrets.Bundle
}

// configs are generated once for each version.
var configs = map[string]func() made{older: generated(older), newer: generated(newer)}

func generated(version string) func() made {
	return sync.OnceValue(func() made {
		contract, err := config.ParseContractFromVersion(version)
		must(err)
		bundle, err := talossecrets.NewBundle(talossecrets.NewClock(), contract, talossecrets.WithECDSAServiceAccountKey())
		must(err)
		input, err := generate.NewInput("test", "https://10.0.0.1:6443", "1.35.2", generate.WithVersionContract(contract), generate.WithSecretsBundle(bundle))
		must(err)
		of := func(role machine.Type) config.Provider {
			c, err := input.Config(role)
			must(err)
			data, err := c.Bytes()
			must(err)
			loaded, err := configloader.NewFromBytes(data)
			must(err)
			return loaded
		}
		return made{controlPlane: of(machine.TypeControlPlane), worker: of(machine.TypeWorker), bundle: bundle}
	})
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func forms(t *testing.T, test func(t *testing.T, of made)) {
	t.Helper()
	for version, of := range configs {
		t.Run(version, func(t *testing.T) { test(t, of()) })
	}
}

func render(t *testing.T, c config.Provider, node secrets.Node, old *secrets.Files) *secrets.Files {
	t.Helper()
	files, err := secrets.Render(c, node, old)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return files
}

func change(t *testing.T, c config.Provider, with ...rotatepatcher.PatcherFunc) config.Provider {
	t.Helper()
	for _, patch := range with {
		var err error
		c, err = patch(c)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
	}
	return c
}

func kubernetesCA(t *testing.T) *x509.PEMEncodedCertificateAndKey {
	t.Helper()
	ca, err := talossecrets.NewKubernetesCA(time.Now(), config.TalosVersion1_13)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return x509.NewCertificateAndKeyFromCertificateAuthority(ca)
}

func talosCA(t *testing.T) *x509.PEMEncodedCertificateAndKey {
	t.Helper()
	ca, err := talossecrets.NewTalosCA(time.Now())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return x509.NewCertificateAndKeyFromCertificateAuthority(ca)
}

// issuedBy says whether a CA has issued the certificate in a file.
func issuedBy(t *testing.T, files *secrets.Files, path string, ca *x509.PEMEncodedCertificateAndKey) bool {
	t.Helper()
	g := NewWithT(t)
	leaf, err := files.Certificate(path)
	g.Expect(err).NotTo(HaveOccurred())
	issuer, err := ca.GetCert()
	g.Expect(err).NotTo(HaveOccurred())
	return leaf.CheckSignatureFrom(issuer) == nil
}

const serverDir = constants.KubernetesAPIServerSecretsDir + "/"

func TestControlPlane(t *testing.T) {
	forms(t, func(t *testing.T, of made) {
		g := NewWithT(t)
		files := render(t, of.controlPlane, controlPlane, nil)
		g.Expect(files.Version).To(Equal(1))
		for certificate, ca := range map[string]*x509.PEMEncodedCertificateAndKey{
			secrets.APIServer: of.bundle.Certs.K8s, secrets.KubeletClientOfServer: of.bundle.Certs.K8s,
			secrets.FrontProxy: of.bundle.Certs.K8sAggregator,
			secrets.EtcdClient: of.bundle.Certs.Etcd, constants.EtcdCert: of.bundle.Certs.Etcd,
			constants.EtcdPeerCert: of.bundle.Certs.Etcd, constants.EtcdAdminCert: of.bundle.Certs.Etcd,
		} {
			g.Expect(issuedBy(t, files, certificate, ca)).To(BeTrue(), certificate)
			_, err := files.KeyPair(certificate)
			g.Expect(err).NotTo(HaveOccurred())
		}
		g.Expect(string(files.Content[secrets.ClientCA])).To(Equal(string(of.bundle.Certs.K8s.Crt)))
		g.Expect(files.Content[serverDir+"service-account.key"]).To(Equal(of.bundle.Certs.K8sServiceAccount.Key))
		g.Expect(string(files.Content[secrets.ServiceAccountKeys])).To(And(ContainSubstring("PUBLIC KEY"), Not(ContainSubstring("PRIVATE"))))
		g.Expect(files.Content[constants.KubernetesControllerManagerSecretsDir+"/ca.key"]).To(Equal(of.bundle.Certs.K8s.Key))

		server, err := files.Certificate(secrets.APIServer)
		g.Expect(err).NotTo(HaveOccurred())
		for _, name := range []string{"10.0.0.1", "10.0.0.2", "fd00::2", "127.0.0.1", "10.96.0.1", "cp-1", "localhost", "kubernetes.default.svc.cluster.local"} {
			g.Expect(server.VerifyHostname(name)).To(Succeed())
		}
		g.Expect(strings.Count(string(files.Content[secrets.APIServer]), "BEGIN CERTIFICATE")).To(Equal(2), "the CA follows")
	})
}

// What is rendered for etcd is byte for byte what Talos's own test data say.
func TestEncryptionConfig(t *testing.T) {
	g := NewWithT(t)
	secretbox := configs[older]().bundle.Secrets.SecretboxEncryptionSecret
	g.Expect(string(render(t, configs[older]().controlPlane, controlPlane, nil).Content[secrets.EncryptionConfig])).To(Equal(`apiVersion: v1
kind: EncryptionConfig
resources:
- providers:
  - secretbox:
      keys:
      - name: key2
        secret: ` + secretbox + `
  - identity: {}
  resources:
  - secrets
`))
	both, err := configs[older]().controlPlane.PatchV1Alpha1(func(c *v1alpha1.Config) error {
		c.ClusterConfig.ClusterAESCBCEncryptionSecret = "b2xkZXIgdGhhbiBzZWNyZXRib3ggYnV0IHRoZXJlIQ==" // The older form.
		return nil
	})
	g.Expect(err).NotTo(HaveOccurred())
	keys, err := render(t, both, controlPlane, nil).EncryptionKeys()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(prefixes(keys)).To(Equal([]string{"k8s:enc:secretbox:v1:key2:", "k8s:enc:aescbc:v1:key1:", ""}))

	c := encrypted(t, map[string]any{"resources": []any{
		map[string]any{"resources": []any{"configmaps"}, "providers": []any{map[string]any{"identity": map[string]any{}}}},
		map[string]any{"resources": []any{"secrets"}, "providers": []any{
			map[string]any{"secretbox": map[string]any{"keys": []any{
				map[string]any{"name": "key3", "secret": "bmV3"}, map[string]any{"name": "key2", "secret": "b2xk"},
			}}},
			map[string]any{"identity": map[string]any{}},
		}},
	}})
	keys, err = render(t, c, controlPlane, nil).EncryptionKeys()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(prefixes(keys)).To(Equal([]string{"k8s:enc:secretbox:v1:key3:", "k8s:enc:secretbox:v1:key2:", ""}))
	g.Expect(keys[0].Fingerprint).NotTo(Equal(keys[1].Fingerprint))

	_, err = secrets.Render(encrypted(t, map[string]any{"surprise": true}), controlPlane, nil)
	g.Expect(err).To(MatchError(ContainSubstring("surprise")))
}

// encrypted is a config of the newer form with another encryption.
func encrypted(t *testing.T, encryption map[string]any) config.Provider {
	t.Helper()
	c, err := container.PatchDocument(configs[newer]().controlPlane, func(doc *k8s.KubeEtcdEncryptionConfigV1Alpha1) error {
		doc.Config.Object = encryption
		return nil
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return c
}

func prefixes(keys []secrets.EncryptionKey) []string {
	var list []string
	for _, key := range keys {
		list = append(list, key.Prefix)
	}
	return list
}

// What a config does not ask to be changed stays, and what it asks for does not touch the rest.
func TestReissue(t *testing.T) {
	forms(t, func(t *testing.T, of made) {
		g := NewWithT(t)
		first := render(t, of.controlPlane, controlPlane, nil)
		again := render(t, of.controlPlane, controlPlane, first)
		g.Expect(again.Changed(first)).To(BeEmpty())
		g.Expect(again.Version).To(Equal(1))

		fresh := kubernetesCA(t)
		accepted := change(t, of.controlPlane, rotatepatcher.K8sAddAcceptedCA(fresh.Crt))
		second := render(t, accepted, controlPlane, first)
		g.Expect(second.Version).To(Equal(2), "static pods are restarted")
		g.Expect(second.Changed(first)).To(ConsistOf(
			secrets.ClientCA, secrets.KubeletCA, constants.KubeletBootstrapKubeconfig, secrets.ManagerKubeconfig, secrets.SchedulerKubeconfig,
		))
		g.Expect(string(second.Content[secrets.ClientCA])).To(Equal(string(of.bundle.Certs.K8s.Crt) + string(fresh.Crt)))

		swapped := change(t, of.controlPlane, rotatepatcher.K8sAddAcceptedCA(of.bundle.Certs.K8s.Crt), rotatepatcher.K8sSetCA(fresh))
		third := render(t, swapped, controlPlane, second)
		g.Expect(third.Version).To(Equal(3))
		g.Expect(issuedBy(t, third, secrets.APIServer, fresh)).To(BeTrue())
		g.Expect(issuedBy(t, third, secrets.KubeletClientOfServer, fresh)).To(BeTrue())
		g.Expect(third.Content[secrets.FrontProxy]).To(Equal(first.Content[secrets.FrontProxy]))
		g.Expect(third.Content[constants.EtcdPeerCert]).To(Equal(first.Content[constants.EtcdPeerCert]))
		g.Expect(string(third.Content[secrets.ClientCA])).To(Equal(string(fresh.Crt) + string(of.bundle.Certs.K8s.Crt)))
		manager, err := clientcmd.Load(third.Content[secrets.ManagerKubeconfig])
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(manager.AuthInfos).To(HaveLen(1))

		renamed := controlPlane
		renamed.Addresses = []string{"10.0.0.3"}
		moved := render(t, swapped, renamed, third)
		g.Expect(moved.Version).To(Equal(3), "names are no secrets")
		g.Expect(moved.Changed(third)).To(ConsistOf(
			secrets.APIServer, serverDir+"apiserver.key", constants.EtcdCert, constants.EtcdKey, constants.EtcdPeerCert, constants.EtcdPeerKey,
		))
	})
}

func TestServiceAccountKeys(t *testing.T) {
	g := NewWithT(t)
	old := configs[newer]().bundle.Certs.K8sServiceAccount
	key, err := x509.NewECDSAKey()
	g.Expect(err).NotTo(HaveOccurred())
	first := render(t, configs[newer]().controlPlane, controlPlane, nil)
	c, err := container.PatchDocument(configs[newer]().controlPlane, func(doc *k8s.KubeServiceAccountConfigV1Alpha1) error {
		doc.ServiceAccepted.PublicKeys = []string{string(key.GetPublicKeyPEM())}
		return nil
	})
	g.Expect(err).NotTo(HaveOccurred())
	second := render(t, c, controlPlane, first)
	g.Expect(second.Version).To(Equal(2))
	g.Expect(second.Content[secrets.ServiceAccountKey]).To(Equal(old.Key))
	g.Expect(string(second.Content[secrets.ServiceAccountKeys])).To(Equal(string(first.Content[secrets.ServiceAccountKeys]) + string(key.GetPublicKeyPEM())))
	g.Expect(second.Changed(first)).To(Equal([]string{secrets.ServiceAccountKeys}))
	g.Expect(second.Flags("/root")).To(ContainElements(
		"--service-account-issuer=https://10.0.0.1:6443", "--api-audiences=https://10.0.0.1:6443",
		"--service-account-key-file=/root"+secrets.ServiceAccountKeys, "--tls-private-key-file=/root"+serverDir+"apiserver.key",
	))
}

func TestKubelet(t *testing.T) {
	forms(t, func(t *testing.T, of made) {
		g := NewWithT(t)
		server := render(t, of.controlPlane, controlPlane, nil)
		files := render(t, of.worker, worker, nil)
		g.Expect(files.Version).To(BeZero())
		g.Expect(files.Enrolled()).To(BeFalse())
		g.Expect(files.KubeletAccepted(server)).To(BeFalse())
		files, err := files.BootstrapKubelet(worker, server)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(files.KubeletAccepted(server)).To(BeTrue())
		leaf, err := files.Certificate(secrets.KubeletClient)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(leaf.Subject.CommonName).To(Equal("system:node:worker-1"))
		g.Expect(leaf.Subject.Organization).To(Equal([]string{"system:nodes"}))
		g.Expect(leaf.ExtKeyUsage).To(Equal([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}))
		_, err = files.KeyPair(secrets.KubeletClient)
		g.Expect(err).NotTo(HaveOccurred())

		fresh := kubernetesCA(t)
		swap := []rotatepatcher.PatcherFunc{rotatepatcher.K8sAddAcceptedCA(of.bundle.Certs.K8s.Crt), rotatepatcher.K8sSetCA(fresh)}
		swapped := render(t, change(t, of.controlPlane, swap...), controlPlane, server)
		g.Expect(files.KubeletAccepted(swapped)).To(BeFalse(), "the kubelet does not know the new CA")
		_, err = files.BootstrapKubelet(worker, swapped)
		g.Expect(err).To(MatchError(secrets.ErrServerNotTrusted))

		kept := render(t, change(t, of.worker, swap...), worker, files)
		g.Expect(kept.Content[secrets.KubeletClient]).To(Equal(files.Content[secrets.KubeletClient]), "the old CA is accepted still")
		g.Expect(kept.KubeletAccepted(swapped)).To(BeTrue())

		drop := []rotatepatcher.PatcherFunc{rotatepatcher.K8sSetCA(fresh), rotatepatcher.K8sDeleteAcceptedCA(of.bundle.Certs.K8s.Crt)}
		dropped := render(t, change(t, of.worker, drop...), worker, kept)
		g.Expect(dropped.Enrolled()).To(BeFalse())
		g.Expect(dropped.Content).NotTo(HaveKey(constants.KubeletKubeconfig))
		dropped, err = dropped.BootstrapKubelet(worker, swapped)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(issuedBy(t, dropped, secrets.KubeletClient, fresh)).To(BeTrue())
		g.Expect(dropped.Rebooted().Content).To(HaveLen(1), "the certificate outlasts a reboot")
	})
}

func TestTalosAPI(t *testing.T) {
	forms(t, func(t *testing.T, of made) {
		g := NewWithT(t)
		roots := func(c config.Provider, node secrets.Node) *secrets.Roots {
			r, err := secrets.RootsOf(c, node.ControlPlane)
			g.Expect(err).NotTo(HaveOccurred())
			return r
		}
		cp, w := roots(of.controlPlane, controlPlane), roots(of.worker, worker)
		api, err := secrets.RenderAPI(cp, controlPlane, nil, nil)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(api.Server.Leaf.VerifyHostname("10.0.0.1")).To(Succeed(), "the load balancer")
		g.Expect(api.Client.Leaf.Subject.Organization).To(Equal([]string{"os:impersonator"}))
		same, err := secrets.RenderAPI(cp, controlPlane, nil, api)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(same.Spec).To(Equal(api.Spec))

		api, err = secrets.RenderAPI(w, worker, []*secrets.Roots{cp}, nil)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(api.Client).To(BeNil())
		_, err = api.Server.Leaf.Verify(stdx509.VerifyOptions{Roots: api.Accepted, DNSName: "10.0.0.10"})
		g.Expect(err).NotTo(HaveOccurred())

		_, err = secrets.RenderAPI(w, worker, nil, nil)
		g.Expect(err).To(MatchError(secrets.ErrNoTrustd))
		fresh := talosCA(t)
		swapped, err := of.controlPlane.PatchV1Alpha1(func(c *v1alpha1.Config) error {
			c.MachineConfig.MachineCA = fresh
			c.MachineConfig.MachineAcceptedCAs = []*x509.PEMEncodedCertificate{{Crt: of.bundle.Certs.OS.Crt}}
			return nil
		})
		g.Expect(err).NotTo(HaveOccurred())
		other := roots(swapped, controlPlane)
		_, err = secrets.RenderAPI(w, worker, []*secrets.Roots{other}, nil)
		g.Expect(err).To(MatchError(secrets.ErrTrustdNotTrusted))
		api, err = secrets.RenderAPI(w, worker, []*secrets.Roots{other, cp}, nil)
		g.Expect(err).NotTo(HaveOccurred(), "another control plane is still as it was")
		g.Expect(string(api.Spec.AcceptedCAs[0].Crt)).To(Equal(string(of.bundle.Certs.OS.Crt)))

		accepting, err := of.worker.PatchV1Alpha1(func(c *v1alpha1.Config) error {
			c.MachineConfig.MachineAcceptedCAs = []*x509.PEMEncodedCertificate{{Crt: fresh.Crt}}
			return nil
		})
		g.Expect(err).NotTo(HaveOccurred())
		api, err = secrets.RenderAPI(roots(accepting, worker), worker, []*secrets.Roots{other}, nil)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(api.Spec.AcceptedCAs[0].Crt)).To(Equal(string(of.bundle.Certs.OS.Crt)+string(fresh.Crt)), "what the control plane accepts")

		strange, err := of.worker.PatchV1Alpha1(func(c *v1alpha1.Config) error {
			c.MachineConfig.MachineToken = "strange.0123456789abcdef"
			return nil
		})
		g.Expect(err).NotTo(HaveOccurred())
		_, err = secrets.RenderAPI(roots(strange, worker), worker, []*secrets.Roots{cp}, nil)
		g.Expect(err).To(MatchError(secrets.ErrTrustdToken))
	})
}

func TestWrite(t *testing.T) {
	g := NewWithT(t)
	root := t.TempDir()
	of := configs[newer]()
	files := render(t, of.controlPlane, controlPlane, nil)
	changed, err := files.Write(root)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(changed).To(Equal(files.Paths()))
	g.Expect(os.ReadFile(filepath.Join(root, secrets.APIServer))).To(Equal(files.Content[secrets.APIServer]))

	files, err = files.BootstrapKubelet(controlPlane, files)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files.Write(root)).To(Equal([]string{constants.KubeletKubeconfig, secrets.KubeletClient}))
	g.Expect(files.Write(root)).To(BeEmpty())

	there, err := secrets.ReadFiles(root, files.Version)
	g.Expect(err).NotTo(HaveOccurred())
	again := render(t, of.controlPlane, controlPlane, there)
	g.Expect(again.Changed(files)).To(BeEmpty(), "nothing is issued anew after a restart")

	dropped := again.Keep(&secrets.Files{}, secrets.OfKubelet)
	g.Expect(dropped.Write(root)).To(Equal([]string{constants.KubeletKubeconfig, secrets.KubeletClient}))
	_, err = os.Stat(filepath.Join(root, secrets.KubeletClient))
	g.Expect(err).To(MatchError(os.ErrNotExist))
}
