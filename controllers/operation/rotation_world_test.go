// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"crypto/x509/pkix"
	"net"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/siderolabs/crypto/x509"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/controllers/operation/kind/carotation"
	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/script"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/providers/target"
)

// vault is a carotation.Vault that takes orders and writes real Secrets.
type vault struct {
	*script.Script

	real carotation.Vault

	// handing is called when an authority is handed over, if it is set.
	handing func()
}

func newVault() *vault {
	return &vault{Script: script.New(), real: carotation.Secrets{Keeper: &credentials.Keeper{Client: admin, Live: admin}}}
}

// Read implements carotation.Vault.
func (v *vault) Read(ctx context.Context, key types.NamespacedName) (map[string][]byte, error) {
	return v.real.Read(ctx, key)
}

// Create implements carotation.Vault.
func (v *vault) Create(ctx context.Context, key types.NamespacedName, cluster string, owner metav1.OwnerReference, data map[string][]byte) error {
	return v.Run(ctx, "Create", "rotation", func() error { return v.real.Create(ctx, key, cluster, owner, data) })
}

// Delete implements carotation.Vault.
func (v *vault) Delete(ctx context.Context, key types.NamespacedName) error {
	return v.Run(ctx, "Delete", "rotation", func() error { return v.real.Delete(ctx, key) })
}

// HandOver implements carotation.Vault.
func (v *vault) HandOver(ctx context.Context, t target.Target, of v1alpha1.CAAuthority, h credentials.Handover) error {
	return v.Run(ctx, "HandOver", string(of), func() error { return v.real.HandOver(ctx, t, of, h) })
}

// HandOverAuthority implements carotation.Vault.
func (v *vault) HandOverAuthority(ctx context.Context, t target.Target, of v1alpha1.CAAuthority, authority credentials.KeyPair, config []byte) error {
	if v.handing != nil {
		v.handing()
	}
	return v.Run(ctx, "HandOverAuthority", string(of), func() error { return v.real.HandOverAuthority(ctx, t, of, authority, config) })
}

func newRotationExecutor(f *fleet) *carotation.Executor {
	return carotation.New(carotation.Options{
		Talos: f.talos, Kube: f.kube, Prover: servers{f}, Vault: f.vault, Credentials: &credentials.Store{Reader: admin},
		Operations: admin, Clock: clock.RealClock{},
	})
}

// servers prove what machines of the fleet have in their configs, as machines that work do.
type servers struct{ *fleet }

// Talos implements carotation.Prover.
func (s servers) Talos(ctx context.Context, _ target.Target, address string, as credentials.Direct) (talos.Machine, error) {
	have, err := s.authorities(ctx, address, v1alpha1.TalosCA)
	if err != nil {
		return talos.Machine{}, err
	}
	switch {
	case !trusts(as, have.Issuing):
		return talos.Machine{}, status.Error(codes.Unavailable, "tls: failed to verify certificate: x509: certificate signed by unknown authority")
	case !credentials.SignedBy(as.Client.Certificate, all(have)...):
		return talos.Machine{}, status.Error(codes.Unavailable, "remote error: tls: unknown certificate authority")
	}
	return s.talos.Facts(address), nil
}

// Kubernetes implements carotation.Prover.
func (s servers) Kubernetes(ctx context.Context, _ target.Target, address string, as credentials.Direct) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port != "6443" {
		return "", apierrors.NewBadRequest("no API server listens at " + address)
	}
	have, err := s.authorities(ctx, host, v1alpha1.KubernetesCA)
	if err != nil {
		return "", err
	}
	switch {
	case !trusts(as, have.Issuing):
		return "", apierrors.NewInternalError(status.Error(codes.Unavailable, "certificate signed by unknown authority"))
	case !credentials.SignedBy(as.Client.Certificate, all(have)...):
		return "", apierrors.NewUnauthorized("Unauthorized")
	}
	return newKubernetes, nil
}

// authorities are what the machine at an address has, if it answers.
func (s servers) authorities(ctx context.Context, address string, of v1alpha1.CAAuthority) (machineconfig.Authorities, error) {
	reader, err := s.talos.Reader(ctx, target.Target{})
	if err != nil {
		return machineconfig.Authorities{}, err
	}
	own, err := reader.Config(ctx, address)
	if err != nil {
		return machineconfig.Authorities{}, err
	}
	return machineconfig.ReadAuthorities(own.Active, of)
}

func trusts(as credentials.Direct, issuing []byte) bool {
	for _, authority := range as.Trust {
		if machineconfig.SameCertificate(authority, issuing) {
			return true
		}
	}
	return false
}

// all are the authorities that are accepted.
func all(have machineconfig.Authorities) [][]byte {
	list := append([][]byte{}, have.Accepted...)
	if len(have.Issuing) > 0 {
		list = append(list, have.Issuing)
	}
	return list
}

// clusterSecrets are the secrets of every cluster that is rotated. Making them takes a moment.
var clusterSecrets = sync.OnceValue(func() *secrets.Bundle {
	made, err := secrets.NewBundle(secrets.NewClock(), talosconfig.TalosVersionCurrent, secrets.WithECDSAServiceAccountKey())
	if err != nil {
		panic(err)
	}
	return made
})

// generated are configs of both roles by the version of Talos that has made them.
var generated sync.Map

func generatedConfig(version string, controlPlane bool) []byte {
	GinkgoHelper()
	role := map[bool]machinetype.Type{true: machinetype.TypeControlPlane, false: machinetype.TypeWorker}[controlPlane]
	if made, ok := generated.Load(version + role.String()); ok {
		return made.([]byte)
	}
	contract, err := talosconfig.ParseContractFromVersion(version)
	Expect(err).NotTo(HaveOccurred())
	input, err := generate.NewInput("c", "https://10.0.0.1:6443", "1.35.1", generate.WithVersionContract(contract), generate.WithSecretsBundle(clusterSecrets()))
	Expect(err).NotTo(HaveOccurred())
	provider, err := input.Config(role)
	Expect(err).NotTo(HaveOccurred())
	data, err := provider.Bytes()
	Expect(err).NotTo(HaveOccurred())
	generated.Store(version+role.String(), data)
	return data
}

// administrator is whom the credentials of the cluster name.
var administrator = map[v1alpha1.CAAuthority]pkix.Name{
	v1alpha1.TalosCA: {Organization: []string{"os:admin"}}, v1alpha1.KubernetesCA: {CommonName: "admin", Organization: []string{"system:masters"}},
}

// oldAuthority is what the cluster has before it is rotated.
func oldAuthority(of v1alpha1.CAAuthority) credentials.KeyPair {
	pair := map[v1alpha1.CAAuthority]*x509.PEMEncodedCertificateAndKey{
		v1alpha1.TalosCA: clusterSecrets().Certs.OS, v1alpha1.KubernetesCA: clusterSecrets().Certs.K8s,
	}[of]
	return credentials.KeyPair{Certificate: pair.Crt, Key: pair.Key}
}

// hasAuthorities gives the cluster configs as a version of Talos makes them, credentials of its authorities, and kubelets that ask for another
// client certificate when theirs is not accepted any more.
func (f *fleet) hasAuthorities(ctx context.Context, version string) {
	GinkgoHelper()
	for name, address := range f.addresses {
		config := generatedConfig(version, strings.HasPrefix(name, "cp"))
		f.talos.Configure(address, talos.Config{Active: config, Persistent: config})
		f.bootstrapKubelet(address)
	}
	f.talos.Applied = func(address string, _ []byte) {
		f.bootstrapKubelet(address)
		f.refuseKubelets()
	}
	client := func(of v1alpha1.CAAuthority) credentials.KeyPair {
		pair, err := oldAuthority(of).Client(administrator[of], time.Now())
		Expect(err).NotTo(HaveOccurred())
		return pair
	}
	ours := client(v1alpha1.TalosCA)
	talosconfig, err := clientconfig.NewConfig("c", []string{"10.0.0.1"}, oldAuthority(v1alpha1.TalosCA).Certificate, &x509.PEMEncodedCertificateAndKey{Crt: ours.Certificate, Key: ours.Key}).Bytes()
	Expect(err).NotTo(HaveOccurred())
	ours = client(v1alpha1.KubernetesCA)
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: "https://10.0.0.1:6443", CertificateAuthorityData: oldAuthority(v1alpha1.KubernetesCA).Certificate}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"admin": {ClientCertificateData: ours.Certificate, ClientKeyData: ours.Key}},
		Contexts:       map[string]*clientcmdapi.Context{"admin@c": {Cluster: "c", AuthInfo: "admin"}},
		CurrentContext: "admin@c",
	})
	Expect(err).NotTo(HaveOccurred())
	for name, data := range map[string]map[string][]byte{
		"c-talosconfig": {credentials.TalosconfigKey: talosconfig}, "c-kubeconfig": {credentials.KubeconfigKey: kubeconfig},
		"c-ca": {corev1.TLSCertKey: oldAuthority(v1alpha1.KubernetesCA).Certificate, corev1.TLSPrivateKeyKey: oldAuthority(v1alpha1.KubernetesCA).Key},
	} {
		Expect(admin.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}}, Data: data,
		})).To(Succeed())
	}
}

// kubeletPath is where a kubelet keeps its client certificate.
const kubeletPath = "/var/lib/kubelet/pki/kubelet-client-current.pem"

// bootstrapKubelet gives a kubelet another client certificate if it does not accept the authority of the one that it has. A control plane signs it.
func (f *fleet) bootstrapKubelet(address string) {
	have, err := machineconfig.ReadAuthorities(f.talos.ConfigOf(address).Active, v1alpha1.KubernetesCA)
	if err != nil {
		return // Another test's config.
	}
	reader, err := f.talos.Reader(context.Background(), target.Target{})
	if err != nil {
		return
	}
	if certificate, err := reader.File(context.Background(), address, kubeletPath); err == nil && credentials.SignedBy(certificate, all(have)...) {
		return
	}
	signer, err := machineconfig.ReadAuthorities(f.talos.ConfigOf(f.addresses["cp1"]).Active, v1alpha1.KubernetesCA)
	if err != nil || len(signer.Key) == 0 {
		return
	}
	pair, err := credentials.KeyPair{Certificate: signer.Issuing, Key: signer.Key}.Client(pkix.Name{CommonName: "system:node"}, time.Now())
	if err == nil && credentials.SignedBy(pair.Certificate, all(have)...) {
		f.talos.Write(address, kubeletPath, append(pair.Certificate, pair.Key...))
	}
}

// renewKubelet gives a kubelet another client certificate, as kubelets ask for one long before theirs ends.
func (f *fleet) renewKubelet(name string) {
	GinkgoHelper()
	signer, err := machineconfig.ReadAuthorities(f.talos.ConfigOf(f.addresses["cp1"]).Active, v1alpha1.KubernetesCA)
	Expect(err).NotTo(HaveOccurred())
	pair, err := credentials.KeyPair{Certificate: signer.Issuing, Key: signer.Key}.Client(pkix.Name{CommonName: "system:node"}, time.Now())
	Expect(err).NotTo(HaveOccurred())
	f.talos.Write(f.addresses[name], kubeletPath, append(pair.Certificate, pair.Key...))
}

// refuseKubelets takes Nodes away whose kubelets have a client certificate that an API server does not accept, where they reach all of them by one
// address.
func (f *fleet) refuseKubelets() {
	if !f.sharedEndpoint {
		return
	}
	reader, err := f.talos.Reader(context.Background(), target.Target{})
	if err != nil {
		return
	}
	for name, address := range f.addresses {
		certificate, err := reader.File(context.Background(), address, kubeletPath)
		accepted := err == nil
		for server, address := range f.addresses {
			if have, err := machineconfig.ReadAuthorities(f.talos.ConfigOf(address).Active, v1alpha1.KubernetesCA); err == nil && strings.HasPrefix(server, "cp") {
				accepted = accepted && credentials.SignedBy(certificate, all(have)...)
			}
		}
		f.kube.Change(name, func(n *kube.Node) {
			n.Ready = accepted
			if !accepted {
				f.refused.Store(name, true)
			}
		})
	}
}

// rotates is a rotation of authorities.
func rotates(of ...v1alpha1.CAAuthority) func() v1alpha1.TalosOperationSpec {
	return func() v1alpha1.TalosOperationSpec {
		return v1alpha1.TalosOperationSpec{Kind: v1alpha1.CARotationKind, CARotation: &v1alpha1.CARotationParameters{Authorities: of}}
	}
}

// secret reads a Secret of the target.
func (f *fleet) secret(ctx context.Context, name string) map[string][]byte {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(admin.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: name}, secret)).To(Succeed())
	return secret.Data
}

// trusted are the authorities that the credentials of an API trust, and its client certificate.
func (f *fleet) trusted(ctx context.Context, of v1alpha1.CAAuthority) (authorities, certificate []byte) {
	GinkgoHelper()
	store := &credentials.Store{Reader: admin}
	t := target.Target{NamespacedName: types.NamespacedName{Namespace: f.namespace, Name: "c"}, KubeconfigSecret: "c-kubeconfig", TalosconfigSecret: "c-talosconfig"}
	if of == v1alpha1.TalosCA {
		config, err := store.Talosconfig(ctx, t)
		Expect(err).NotTo(HaveOccurred())
		Expect(config.Check(time.Now())).To(BeNil())
		pair, err := credentials.TalosClient(config.Context)
		Expect(err).NotTo(HaveOccurred())
		authorities, err := credentials.TalosAuthorities(config.Context)
		Expect(err).NotTo(HaveOccurred())
		return authorities, pair.Certificate
	}
	config, err := store.Kubeconfig(ctx, t)
	Expect(err).NotTo(HaveOccurred())
	Expect(config.Check(time.Now())).To(BeNil())
	return config.Config.CAData, config.Config.CertData
}

// position says where each machine is: whether it signs by the old authority, and whether it accepts it.
func (f *fleet) position(of v1alpha1.CAAuthority, name string) (signsByOld, acceptsOld, acceptsOthers bool) {
	GinkgoHelper()
	have, err := machineconfig.ReadAuthorities(f.talos.ConfigOf(f.addresses[name]).Active, of)
	Expect(err).NotTo(HaveOccurred())
	old := oldAuthority(of).Certificate
	others := 0
	for _, certificate := range all(have) {
		if !machineconfig.SameCertificate(certificate, old) {
			others++
		}
	}
	return have.Issues(old), have.Accepts(old), others > 0
}

// silentNode takes a Node's machine off the network, or brings it back.
func (f *fleet) silentNode(name string, silent bool) {
	f.talos.Silence(f.addresses[name], silent)
	f.kube.Change(name, func(n *kube.Node) { n.Ready = !silent })
}
