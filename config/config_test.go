// SPDX-License-Identifier: Apache-2.0

// Package config_test holds the manifests to what they promise.
package config_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"ichor.maesh.dev/hub/config/crd"
	"ichor.maesh.dev/hub/config/policies"
	"ichor.maesh.dev/hub/config/rbac"
	"ichor.maesh.dev/hub/hack/kustomize"
	"ichor.maesh.dev/hub/hub/scheme"
)

const namespace = "ichor-system"

// all are the directories that people apply.
var all = []string{
	"certmanager", "clusterctl", "crd", "crd/cluster-api", "default", "grafana", "manager", "namespaced", "policies", "policies/mutating", "prometheus", "rbac", "samples",
}

// foreign are the kinds that others define, and whose schema is not here.
var foreign = []string{"Certificate.cert-manager.io", "Issuer.cert-manager.io", "PrometheusRule.monitoring.coreos.com", "ServiceMonitor.monitoring.coreos.com"}

// clusterScoped are the kinds of the manifests that are in no namespace.
var clusterScoped = []string{
	"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "Namespace",
	"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}

func render(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := kustomize.Objects(dir)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(objects).NotTo(BeEmpty(), dir)
	return objects
}

// typed decodes strictly: a field that the API does not know is an error.
func typed(g *WithT, object *unstructured.Unstructured) runtime.Object {
	s := scheme.New()
	g.Expect(apiextensionsv1.AddToScheme(s)).To(Succeed())
	content, err := json.Marshal(object)
	g.Expect(err).NotTo(HaveOccurred())
	decoded, _, err := serializer.NewCodecFactory(s, serializer.EnableStrict).UniversalDeserializer().Decode(content, nil, nil)
	g.Expect(err).NotTo(HaveOccurred(), "%s %s", object.GetKind(), object.GetName())
	return decoded
}

// only is the object of a type, of which there is one.
func only[T runtime.Object](t *testing.T, dir string) T {
	t.Helper()
	g := NewWithT(t)
	var found []T
	for _, object := range render(t, dir) {
		if slices.Contains(foreign, object.GroupVersionKind().GroupKind().String()) {
			continue
		}
		if match, ok := typed(g, object).(T); ok {
			found = append(found, match)
		}
	}
	g.Expect(found).To(HaveLen(1))
	return found[0]
}

func TestEveryObjectIsWhatItsSchemaAllows(t *testing.T) {
	for _, dir := range all {
		t.Run(dir, func(t *testing.T) {
			g := NewWithT(t)
			seen := map[string]bool{}
			for _, object := range render(t, dir) {
				kind := object.GroupVersionKind().GroupKind()
				key := kind.String() + " " + object.GetNamespace() + "/" + object.GetName()
				g.Expect(seen).NotTo(HaveKey(key))
				seen[key] = true
				if slices.Contains(clusterScoped, kind.Kind) {
					g.Expect(object.GetNamespace()).To(BeEmpty(), key)
				} else if dir != "samples" {
					g.Expect(object.GetNamespace()).To(Equal(namespace), key)
				}
				if slices.Contains(foreign, kind.String()) {
					continue
				}
				typed(g, object)
			}
		})
	}
}

// Every directory with a kustomization is among those that are looked at here.
func TestNoDirectoryIsForgotten(t *testing.T) {
	g := NewWithT(t)
	var found []string
	g.Expect(filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "kustomization.yaml" {
			found = append(found, filepath.ToSlash(filepath.Dir(path)))
		}
		return err
	})).To(Succeed())
	g.Expect(found).To(ConsistOf(all))
}

// What a standalone hub installs is what is installed on Kubernetes, file by file.
func TestKustomizationsAndTheStandaloneHubInstallTheSame(t *testing.T) {
	for _, row := range []struct {
		dirs     []string
		embedded fs.FS
	}{
		{[]string{"crd"}, crd.Own},
		{[]string{"crd/cluster-api"}, crd.ClusterAPI},
		{[]string{"rbac"}, rbac.Manifests},
		{[]string{"policies", "policies/mutating"}, policies.Manifests},
	} {
		t.Run(row.dirs[0], func(t *testing.T) {
			g := NewWithT(t)
			rendered, embedded, onDisk := map[string]any{}, map[string]any{}, 0
			for _, dir := range row.dirs {
				for _, object := range render(t, dir) {
					others := object.GetLabels()
					delete(others, "clusterctl.cluster.x-k8s.io")
					if len(others) == 0 {
						others = nil
					}
					object.SetLabels(others)
					rendered[object.GetKind()+" "+object.GetName()] = object.Object
				}
				files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
				g.Expect(err).NotTo(HaveOccurred())
				bases, err := filepath.Glob(filepath.Join(dir, "bases", "*.yaml"))
				g.Expect(err).NotTo(HaveOccurred())
				onDisk += len(files) + len(bases) - 1
			}
			files := 0
			g.Expect(fs.WalkDir(row.embedded, ".", func(path string, entry fs.DirEntry, err error) error {
				if err != nil || entry.IsDir() {
					return err
				}
				files++
				content, err := fs.ReadFile(row.embedded, path)
				g.Expect(err).NotTo(HaveOccurred())
				objects, err := kustomize.Read(content)
				g.Expect(err).NotTo(HaveOccurred())
				for _, object := range objects {
					embedded[object.GetKind()+" "+object.GetName()] = object.Object
				}
				return nil
			})).To(Succeed())
			g.Expect(files).To(Equal(onDisk), "a file is missing in the embedded ones")
			g.Expect(slices.Sorted(maps.Keys(rendered))).To(Equal(slices.Sorted(maps.Keys(embedded))))
			for name := range embedded {
				g.Expect(squeezed(rendered[name])).To(Equal(squeezed(embedded[name])), name)
			}
		})
	}
}

// squeezed is a value without blanks that mean nothing: kustomize writes expressions over several lines with other ones than it has read.
func squeezed(value any) any {
	switch value := value.(type) {
	case string:
		return strings.Join(strings.Fields(value), " ")
	case []any:
		list := make([]any, len(value))
		for i := range value {
			list[i] = squeezed(value[i])
		}
		return list
	case map[string]any:
		fields := map[string]any{}
		for name := range value {
			fields[name] = squeezed(value[name])
		}
		return fields
	}
	return value
}

// `clusterctl move` finds the kinds to move by a label of their definitions.
func TestDefinitionsAreFoundByClusterctl(t *testing.T) {
	g := NewWithT(t)
	for _, object := range render(t, "default") {
		if object.GetKind() == "CustomResourceDefinition" {
			g.Expect(object.GetLabels()).To(HaveKey("clusterctl.cluster.x-k8s.io"), object.GetName())
			g.Expect(object.GetName()).NotTo(ContainSubstring("cluster.x-k8s.io"), "Cluster API brings its own")
		}
	}
}

func TestPodsAreRestricted(t *testing.T) {
	g := NewWithT(t)
	deployment := only[*appsv1.Deployment](t, "default")
	pod := deployment.Spec.Template

	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	g.Expect(err).NotTo(HaveOccurred())
	strictest := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
	result := policy.AggregateCheckResults(evaluator.EvaluatePod(strictest, &pod.ObjectMeta, &pod.Spec))
	g.Expect(result.Allowed).To(BeTrue(), result.ForbiddenDetail())
	g.Expect(only[*corev1.Namespace](t, "default").Labels).To(HaveKeyWithValue("pod-security.kubernetes.io/enforce", "restricted"))

	g.Expect(pod.Spec.Containers).To(HaveLen(1))
	container := pod.Spec.Containers[0]
	g.Expect(container.Name).To(Equal("manager"), "clusterctl and its users look for it")
	g.Expect(*container.SecurityContext.ReadOnlyRootFilesystem).To(BeTrue())
	g.Expect(container.Resources.Requests).To(And(HaveKey(corev1.ResourceCPU), HaveKey(corev1.ResourceMemory)))
	g.Expect(container.Resources.Limits).To(HaveKey(corev1.ResourceMemory))
	for _, mount := range container.VolumeMounts {
		g.Expect(mount.ReadOnly).To(BeTrue(), mount.Name)
	}
	for _, probe := range []*corev1.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
		g.Expect(probe.HTTPGet.Scheme).To(Equal(corev1.URISchemeHTTPS))
	}
	g.Expect(container.ReadinessProbe.HTTPGet.Path).To(Equal("/readyz"))
}

func TestReplicasStandInForEachOther(t *testing.T) {
	g := NewWithT(t)
	deployment := only[*appsv1.Deployment](t, "default")
	pod := deployment.Spec.Template
	selected := labels.Set(pod.Labels)

	g.Expect(*deployment.Spec.Replicas).To(BeNumerically(">=", 2))
	g.Expect(deployment.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue()).To(BeZero())
	g.Expect(pod.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution).To(HaveLen(1))
	g.Expect(pod.Spec.TopologySpreadConstraints).To(HaveLen(1))
	for _, selector := range []map[string]string{
		deployment.Spec.Selector.MatchLabels,
		pod.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.LabelSelector.MatchLabels,
		pod.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
		only[*policyv1.PodDisruptionBudget](t, "default").Spec.Selector.MatchLabels,
		only[*networkingv1.NetworkPolicy](t, "default").Spec.PodSelector.MatchLabels,
		only[*corev1.Service](t, "default").Spec.Selector,
	} {
		g.Expect(selector).NotTo(BeEmpty())
		g.Expect(labels.SelectorFromSet(selector).Matches(selected)).To(BeTrue(), "%v", selector)
	}
	g.Expect(only[*policyv1.PodDisruptionBudget](t, "default").Spec.MinAvailable.IntValue()).To(BeNumerically("<", *deployment.Spec.Replicas))
	// The election releases the Lease at the end, and the hub takes 10 seconds at most for it.
	g.Expect(*pod.Spec.TerminationGracePeriodSeconds).To(BeNumerically(">=", 20))
}

func TestPortsAreThoseOfTheContainer(t *testing.T) {
	g := NewWithT(t)
	container := only[*appsv1.Deployment](t, "default").Spec.Template.Spec.Containers[0]
	ports := map[string]int32{}
	for _, port := range container.Ports {
		ports[port.Name] = port.ContainerPort
	}
	g.Expect(ports).To(Equal(map[string]int32{"https": 8443, "metrics": 9443}))
	g.Expect(container.Args).To(ContainElements("--listen=:8443", "--metrics-bind-address=:9443"))
	for _, port := range only[*corev1.Service](t, "default").Spec.Ports {
		g.Expect(ports).To(HaveKey(port.TargetPort.StrVal))
	}
	network := only[*networkingv1.NetworkPolicy](t, "default").Spec
	g.Expect(network.PolicyTypes).To(ConsistOf(networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress))
	for _, rule := range network.Ingress {
		g.Expect(rule.Ports).NotTo(BeEmpty(), "an ingress rule without ports opens all")
		for _, port := range rule.Ports {
			g.Expect(ports).To(HaveKey(port.Port.StrVal))
			if port.Port.StrVal == "metrics" {
				g.Expect(rule.From).NotTo(BeEmpty(), "metrics are for pods")
			}
		}
	}
	for _, rule := range network.Egress {
		g.Expect(rule.Ports).NotTo(BeEmpty(), "an egress rule without ports opens all")
	}
}

// The pods have the hub's role; in their own namespace they may make Jobs that upgrade the hub. Those have rights of
// their own, and nobody else has any.
func TestTheHubHasItsOwnRightsAndNoOthers(t *testing.T) {
	g := NewWithT(t)
	g.Expect(only[*appsv1.Deployment](t, "default").Spec.Template.Spec.ServiceAccountName).To(Equal("ichor-hub"))
	granted := map[string][]string{}
	for _, object := range render(t, "default") {
		var subjects []rbacv1.Subject
		var role rbacv1.RoleRef
		switch object.GetKind() {
		case "ClusterRoleBinding":
			binding := typed(g, object).(*rbacv1.ClusterRoleBinding)
			subjects, role = binding.Subjects, binding.RoleRef
		case "RoleBinding":
			binding := typed(g, object).(*rbacv1.RoleBinding)
			subjects, role = binding.Subjects, binding.RoleRef
		default:
			continue
		}
		g.Expect(subjects).To(ConsistOf(And(HaveField("Kind", rbacv1.ServiceAccountKind), HaveField("Namespace", "ichor-system"))))
		granted[subjects[0].Name] = append(granted[subjects[0].Name], role.Kind+" "+role.Name)
	}
	g.Expect(granted).To(HaveLen(2))
	g.Expect(granted["ichor-hub"]).To(ConsistOf("ClusterRole "+rbac.HubRole, "Role ichor-hub-installation"))
	g.Expect(granted["ichor-installer"]).To(ConsistOf("ClusterRole ichor-installer", "Role ichor-installer"))
}

// Nobody reads Secrets of the hub by a wildcard: the only one there is says whom it may act for.
func TestNoRuleIsAWildcard(t *testing.T) {
	g := NewWithT(t)
	for _, object := range render(t, "default") {
		if object.GetKind() != "ClusterRole" && object.GetKind() != "Role" {
			continue
		}
		rules, _, err := unstructured.NestedSlice(object.Object, "rules")
		g.Expect(err).NotTo(HaveOccurred())
		for _, rule := range rules {
			fields := rule.(map[string]any)
			g.Expect(fields["verbs"]).NotTo(ContainElement("*"), object.GetName())
			g.Expect(fields["apiGroups"]).NotTo(ContainElement("*"), object.GetName())
			if slices.Contains(fields["resources"].([]any), "*") {
				g.Expect(fields["apiGroups"]).To(ConsistOf("authentication.k8s.io"), object.GetName())
				g.Expect(fields["verbs"]).To(ConsistOf("impersonate"), object.GetName())
			}
		}
	}
}

// The certificate is for the name by which the Service is found, in whatever namespace.
func TestTheCertificateIsForTheService(t *testing.T) {
	g := NewWithT(t)
	service := only[*corev1.Service](t, "default")
	deployment := only[*appsv1.Deployment](t, "default")
	for _, object := range render(t, "default") {
		if object.GetKind() != "Certificate" {
			continue
		}
		names, _, err := unstructured.NestedStringSlice(object.Object, "spec", "dnsNames")
		g.Expect(err).NotTo(HaveOccurred())
		host := service.Name + "." + service.Namespace + ".svc"
		g.Expect(names).To(ConsistOf(host, host+".cluster.local"))
		secret, _, _ := unstructured.NestedString(object.Object, "spec", "secretName")
		g.Expect(deployment.Spec.Template.Spec.Volumes[0].Secret.SecretName).To(Equal(secret))
		return
	}
	t.Fatal("there is no Certificate")
}

// kubectl applies in the order of the manifests: what something is in, or needs, comes before it.
func TestTheOrderIsThatOfNeed(t *testing.T) {
	g := NewWithT(t)
	at := map[string]int{}
	for i, object := range render(t, "default") {
		if _, seen := at[object.GetKind()]; !seen {
			at[object.GetKind()] = i
		}
		if object.GetNamespace() != "" {
			g.Expect(at).To(HaveKey("Namespace"), object.GetName())
		}
	}
	for _, before := range []string{"CustomResourceDefinition", "Namespace", "ServiceAccount", "ClusterRoleBinding", "RoleBinding"} {
		g.Expect(at[before]).To(BeNumerically("<", at["Deployment"]), before)
	}
}

func TestTheProviderIsLabelled(t *testing.T) {
	g := NewWithT(t)
	namespaces := 0
	for _, object := range render(t, "clusterctl") {
		g.Expect(object.GetLabels()).To(HaveKeyWithValue("cluster.x-k8s.io/provider", "addon-ichor"), object.GetName())
		if object.GetKind() == "Namespace" {
			namespaces++
		}
	}
	g.Expect(namespaces).To(Equal(1), "clusterctl refuses two, and asks where to install for want of one")
}

// metricName finds the names of the hub's metrics in code and in queries.
var metricName = regexp.MustCompile(`\bichor_[a-z_]+\b`)

// Alerts and the dashboard ask for metrics that the hub has.
func TestQueriesAskForMetricsThatThereAre(t *testing.T) {
	g := NewWithT(t)
	defined := map[string]bool{}
	for _, tree := range []string{"../controllers", "../hub"} {
		g.Expect(filepath.WalkDir(tree, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			for _, name := range regexp.MustCompile(`Name:\s+"(ichor_\w+)"`).FindAllSubmatch(content, -1) {
				defined[string(name[1])] = true
			}
			return err
		})).To(Succeed())
	}
	g.Expect(len(defined)).To(BeNumerically(">", 8))
	asked := map[string]bool{}
	for _, file := range []string{"prometheus/rules.yaml", "grafana/ichor-hub.json"} {
		content, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		for _, name := range metricName.FindAllString(string(content), -1) {
			asked[strings.TrimSuffix(name, "_bucket")] = true
		}
	}
	g.Expect(slices.Sorted(maps.Keys(defined))).To(ContainElements(slices.Sorted(maps.Keys(asked))))
}

func TestAlertsSayWhatToDo(t *testing.T) {
	g := NewWithT(t)
	var rules struct {
		Spec struct {
			Groups []struct {
				Rules []struct {
					Alert, Expr, For    string
					Labels, Annotations map[string]string
				}
			}
		}
	}
	content, err := os.ReadFile("prometheus/rules.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(yaml.Unmarshal(content, &rules)).To(Succeed())
	seen := map[string]bool{}
	for _, rule := range rules.Spec.Groups[0].Rules {
		g.Expect(rule.Alert).To(HavePrefix("Ichor"))
		g.Expect(seen).NotTo(HaveKey(rule.Alert))
		seen[rule.Alert] = true
		g.Expect(rule.Expr).NotTo(BeEmpty(), rule.Alert)
		g.Expect(rule.Labels["severity"]).To(BeElementOf("warning", "critical"), rule.Alert)
		g.Expect(rule.Annotations["summary"]).To(HaveSuffix("."), rule.Alert)
		g.Expect(rule.Annotations["description"]).NotTo(BeEmpty(), rule.Alert)
	}
	g.Expect(len(seen)).To(BeNumerically(">", 8))
}

// Who copies the rules from the docs has those that are shipped.
func TestDocsQuoteTheAlertsOfSnapshots(t *testing.T) {
	g := NewWithT(t)
	rules, err := os.ReadFile("prometheus/rules.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	docs, err := os.ReadFile("../docs/snapshots.md")
	g.Expect(err).NotTo(HaveOccurred())
	quoted := 0
	for _, rule := range strings.Split(string(rules), "\n    - ")[1:] {
		if !strings.HasPrefix(rule, "alert: IchorSnapshot") {
			continue
		}
		quoted++
		g.Expect(string(docs)).To(ContainSubstring("\n- " + strings.ReplaceAll(rule, "\n    ", "\n") + "\n"))
	}
	g.Expect(quoted).To(Equal(2))
}
