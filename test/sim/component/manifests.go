// SPDX-License-Identifier: Apache-2.0

package component

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Manifest is one of the bootstrap manifests that Talos renders from a control plane's config.
type Manifest struct {
	// ID is that of the resource, such as "10-kube-proxy".
	ID string
	// Objects are the Kubernetes objects in it.
	Objects []map[string]any
}

// rendering is done once, when somebody first wants to see it.
type rendering struct {
	once      sync.Once
	manifests []Manifest
}

// Manifests are the bootstrap manifests; nobody may change them.
func (s *Set) Manifests() []Manifest {
	s.rendering.once.Do(func() {
		if s.Bootstrap != nil {
			s.rendering.manifests = render(s.Bootstrap)
		}
	})
	return s.rendering.manifests
}

// render renders all manifests. Only one of them tells one cluster from another; clusters share the others.
func render(spec *k8s.BootstrapManifestsConfigSpec) []Manifest {
	common := *spec
	common.Server = ""
	shared, _ := renderings.LoadOrStore(fmt.Sprintf("%+v", common), sync.OnceValue(func() []Manifest { return renderCommon(&common) }))
	list := append(slices.Clone(shared.(func() []Manifest)()), manifest("11-kube-config-in-cluster", kubeconfigInCluster(spec))) //nolint:forcetypeassert // Nothing else is stored.
	slices.SortFunc(list, func(a, b Manifest) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// renderings are what was rendered, by what it was rendered from.
var renderings sync.Map

func renderCommon(spec *k8s.BootstrapManifestsConfigSpec) []Manifest {
	list := []Manifest{
		manifest("01-csr-approver-role-binding", clusterRoleBinding("system-bootstrap-approve-node-client-csr",
			"system:certificates.k8s.io:certificatesigningrequests:nodeclient", group("system:bootstrappers"))),
		manifest("01-csr-node-bootstrap", clusterRoleBinding("system-bootstrap-node-bootstrapper",
			"system:node-bootstrapper", group("system:bootstrappers:nodes"), group("system:nodes"))),
		manifest("01-csr-renewal-role-binding", clusterRoleBinding("system-bootstrap-node-renewal",
			"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", group("system:nodes"))),
	}
	if spec.FlannelEnabled {
		list = append(list, manifest("05-flannel", flannel(spec)...))
	}
	if spec.ProxyEnabled {
		list = append(list, manifest("10-kube-proxy", proxy(spec)...))
	}
	if spec.CoreDNSEnabled {
		list = append(list, manifest("11-core-dns", coreDNS(spec)...), manifest("11-core-dns-svc", coreDNSService(spec)))
	}
	return append(list,
		manifest("11-talos-node-rbac-template",
			clusterRoleBinding("system:talos-nodes", "system:talos-nodes", group("system:nodes")), talosNodes()),
	)
}

// manifest turns objects into what the resource holds: no status, and no times.
func manifest(id string, objects ...runtime.Object) Manifest {
	m := Manifest{ID: id}
	for _, obj := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			continue // All of them are plain structs.
		}
		delete(content, "status")
		unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
		unstructured.RemoveNestedField(content, "spec", "template", "metadata", "creationTimestamp")
		m.Objects = append(m.Objects, content)
	}
	return m
}

func group(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: name}
}

func serviceAccountSubject(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: metav1.NamespaceSystem}
}

func clusterRoleBinding(name, role string, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Subjects:   subjects,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}
}

func clusterRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      rules,
	}
}

// rule is about a resource of the core group.
func rule(resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, Verbs: verbs}
}

func talosNodes() *rbacv1.ClusterRole {
	return clusterRole("system:talos-nodes",
		rule("nodes", "get", "list", "watch", "create", "update", "delete", "patch"),
		rule("pods", "list", "get"), rule("pods/eviction", "create"))
}

func serviceAccount(name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: system(name, nil)}
}

func configMap(name string, labels, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: system(name, labels), Data: data}
}

func system(name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name, Labels: labels}
}

func kubeconfigInCluster(spec *k8s.BootstrapManifestsConfigSpec) *corev1.ConfigMap {
	return configMap("kubeconfig-in-cluster", nil, map[string]string{"kubeconfig": fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: local
  cluster: {server: %s, certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt}
users:
- name: service-account
  user: {tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token}
contexts:
- context: {cluster: local, user: service-account}
`, spec.Server)})
}

func template(labels map[string]string, account string, hostNetwork bool, containers ...corev1.Container) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{
			Containers: containers, HostNetwork: hostNetwork, PriorityClassName: "system-cluster-critical", ServiceAccountName: account,
			Tolerations: []corev1.Toleration{{Effect: corev1.TaintEffectNoSchedule, Operator: corev1.TolerationOpExists}},
		},
	}
}

func daemonSet(name string, labels map[string]string, container corev1.Container, account string) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}, ObjectMeta: system(name, labels),
		Spec: appsv1.DaemonSetSpec{
			Selector:       &metav1.LabelSelector{MatchLabels: labels},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType},
			Template:       template(labels, account, true, container),
		},
	}
}

func fieldEnv(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

func proxy(spec *k8s.BootstrapManifestsConfigSpec) []runtime.Object {
	container := corev1.Container{
		Name: Proxy, Image: spec.ProxyImage, Command: append([]string{"/usr/local/bin/" + Proxy}, spec.ProxyArgs...),
		Env: []corev1.EnvVar{fieldEnv("NODE_NAME", "spec.nodeName"), fieldEnv("POD_IP", "status.podIP")},
	}
	return []runtime.Object{
		daemonSet(Proxy, map[string]string{"tier": "node", "k8s-app": Proxy}, container, Proxy), serviceAccount(Proxy),
		clusterRoleBinding(Proxy, "system:node-proxier", serviceAccountSubject(Proxy)),
	}
}

func flannel(spec *k8s.BootstrapManifestsConfigSpec) []runtime.Object {
	labels := map[string]string{"tier": "node", "k8s-app": "flannel"}
	network := fmt.Sprintf("{\"Network\": %q, \"Backend\": {\"Type\": %q, \"Port\": %d}}", spec.PodCIDRs[0], spec.FlannelBackendType, spec.FlannelBackendPort)
	container := corev1.Container{
		Name: "kube-flannel", Image: spec.FlannelImage,
		Command: []string{"/opt/bin/flanneld"}, Args: append([]string{"--ip-masq", "--kube-subnet-mgr"}, spec.FlannelExtraArgs...),
		Env: []corev1.EnvVar{fieldEnv("POD_NAME", "metadata.name"), fieldEnv("POD_NAMESPACE", "metadata.namespace")},
	}
	return []runtime.Object{
		clusterRole("flannel", rule("pods", "get"), rule("nodes", "get", "list", "watch"), rule("nodes/status", "patch")),
		clusterRoleBinding("flannel", "flannel", serviceAccountSubject("flannel")), serviceAccount("flannel"),
		configMap("kube-flannel-cfg", labels, map[string]string{"net-conf.json": network}),
		daemonSet("kube-flannel", labels, container, "flannel"),
	}
}

// dnsReplicas is how many replicas of CoreDNS there are.
const dnsReplicas = 2

func coreDNS(spec *k8s.BootstrapManifestsConfigSpec) []runtime.Object {
	labels := map[string]string{"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS"}
	selector := map[string]string{"k8s-app": "kube-dns"}
	replicas := int32(dnsReplicas)
	container := corev1.Container{
		Name: "coredns", Image: spec.CoreDNSImage, Args: []string{"-conf", "/etc/coredns/Corefile"},
		Ports: []corev1.ContainerPort{{Name: "dns", Protocol: corev1.ProtocolUDP, ContainerPort: 53}},
	}
	return []runtime.Object{
		serviceAccount("coredns"),
		clusterRole("system:coredns", rule("endpoints", "list", "watch"), rule("services", "list", "watch"), rule("pods", "list", "watch")),
		clusterRoleBinding("system:coredns", "system:coredns", serviceAccountSubject("coredns")),
		configMap("coredns", nil, map[string]string{"Corefile": ".:53 {\n    errors\n    health\n    ready\n    kubernetes " +
			spec.ClusterDomain + " in-addr.arpa ip6.arpa\n    forward . /etc/resolv.conf\n    cache 30\n}\n"}),
		&appsv1.Deployment{
			TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: system("coredns", labels),
			Spec: appsv1.DeploymentSpec{
				Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: selector},
				Template: template(selector, "coredns", false, container),
			},
		},
	}
}

func coreDNSService(spec *k8s.BootstrapManifestsConfigSpec) *corev1.Service {
	return &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: system("kube-dns", map[string]string{"k8s-app": "kube-dns"}),
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"k8s-app": "kube-dns"}, ClusterIP: spec.DNSServiceIP,
			Ports: []corev1.ServicePort{
				{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53}, {Name: "dns-tcp", Protocol: corev1.ProtocolTCP, Port: 53},
			},
		},
	}
}
