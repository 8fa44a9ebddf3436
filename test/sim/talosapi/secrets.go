// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"slices"
	"strconv"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	talossecrets "github.com/siderolabs/talos/pkg/machinery/resources/secrets"

	"ichor.maesh.dev/hub/test/sim/secrets"
)

// onDemand are the types of resources that are made when somebody reads one of them for the first time: hardly anybody does. Those that
// need files are made then, or when the config asks for other files.
var onDemand = map[resource.Type]bool{
	talossecrets.OSRootType: false, talossecrets.EtcdRootType: false, talossecrets.KubernetesRootType: false,
	talossecrets.KubeletType: false, talossecrets.APIType: false, k8s.SecretsStatusType: false,
	talossecrets.KubernetesDynamicCertsType: true, talossecrets.KubernetesType: true, talossecrets.EtcdType: true,
}

// reveal makes what somebody is about to read.
func (n *node) reveal(t resource.Type) {
	files, ok := onDemand[t]
	if !ok {
		return
	}
	if files {
		n.Files()
	}
	n.mu.Lock()
	news := !n.revealed || files && n.secretsFrom.files == nil
	n.revealed = true
	n.mu.Unlock()
	if news {
		n.sync()
	}
}

// secretsState is what the resources of the secrets are made from.
type secretsState struct {
	api     *secrets.API
	files   *secrets.Files
	roots   [2]*secrets.Roots
	version int
}

// secrets are the resources with secret material. They are made anew when something has changed; the caller is alone.
func (n *node) secrets() []resource.Resource {
	if !n.revealed {
		return nil
	}
	now := secretsState{files: n.Rendered(), version: n.SecretsVersion()}
	now.api, _ = n.API()
	now.roots[0], now.roots[1] = n.Roots()
	if n.secretsFrom != now || n.secretsNow == nil {
		n.secretsFrom, n.secretsNow = now, fromSecrets(now)
	}
	return slices.Clone(n.secretsNow)
}

func fromSecrets(s secretsState) []resource.Resource {
	list := []resource.Resource{}
	if s.api != nil {
		r := talossecrets.NewAPI()
		*r.TypedSpec() = s.api.Spec
		list = append(list, r)
	}
	if of := s.roots[0]; of != nil {
		r := talossecrets.NewOSRoot(talossecrets.OSRootID)
		*r.TypedSpec() = *of.OS
		list = append(list, r)
	}
	if of := s.roots[1]; of != nil {
		list = append(list, fromRoots(of, s.version)...)
	}
	if s.files != nil && s.roots[1] != nil && s.roots[1].Kubernetes != nil {
		list = append(list, fromFiles(s.files)...)
	}
	return list
}

func fromRoots(roots *secrets.Roots, version int) []resource.Resource {
	kubelet := talossecrets.NewKubelet(talossecrets.KubeletID)
	*kubelet.TypedSpec() = *roots.Kubelet
	list := []resource.Resource{kubelet}
	if roots.Etcd != nil {
		r := talossecrets.NewEtcdRoot(talossecrets.EtcdRootID)
		*r.TypedSpec() = *roots.Etcd
		list = append(list, r)
	}
	if roots.Kubernetes != nil {
		r := talossecrets.NewKubernetesRoot(talossecrets.KubernetesRootID)
		*r.TypedSpec() = *roots.Kubernetes
		status := k8s.NewSecretsStatus(k8s.ControlPlaneNamespaceName, k8s.StaticPodSecretsStaticPodID)
		status.TypedSpec().Ready, status.TypedSpec().Version = true, strconv.Itoa(version)
		list = append(list, r, status)
	}
	return list
}

func fromFiles(files *secrets.Files) []resource.Resource {
	pair := func(certificate string) *x509.PEMEncodedCertificateAndKey {
		return &x509.PEMEncodedCertificateAndKey{Crt: files.Content[certificate], Key: files.Content[secrets.KeyPath(certificate)]}
	}
	dynamic := talossecrets.NewKubernetesDynamicCerts()
	*dynamic.TypedSpec() = talossecrets.KubernetesDynamicCertsSpec{
		APIServer: pair(secrets.APIServer), APIServerKubeletClient: pair(secrets.KubeletClientOfServer), FrontProxy: pair(secrets.FrontProxy),
	}
	kubernetes := talossecrets.NewKubernetes()
	*kubernetes.TypedSpec() = talossecrets.KubernetesCertsSpec{
		SchedulerKubeconfig:         string(files.Content[secrets.SchedulerKubeconfig]),
		ControllerManagerKubeconfig: string(files.Content[secrets.ManagerKubeconfig]),
	}
	etcd := talossecrets.NewEtcd()
	*etcd.TypedSpec() = talossecrets.EtcdCertsSpec{
		Etcd: pair(constants.EtcdCert), EtcdPeer: pair(constants.EtcdPeerCert), EtcdAdmin: pair(constants.EtcdAdminCert),
		EtcdAPIServer: pair(secrets.EtcdClient),
	}
	return []resource.Resource{dynamic, kubernetes, etcd}
}
