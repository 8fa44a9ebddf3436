// SPDX-License-Identifier: Apache-2.0

// Package helm_test renders, lints and packages the chart with the real helm.
package helm_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"ichor.maesh.dev/hub/hack/kustomize"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/test/framework"
)

const (
	config = "../../../../config"
	chart  = config + "/chart/ichor-hub"

	// namespace is the one of config/.
	namespace = "ichor-system"
)

func TestMain(m *testing.M) {
	if !framework.MayRun(os.Stderr, "helm") {
		if os.Getenv(framework.RequireVariable) == "1" {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// helm runs the real client, with nothing of the user's.
func helm(t *testing.T, args ...string) (out, errOut string, err error) {
	t.Helper()
	binary, err := framework.Binary("helm")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = []string{"HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home, "KUBECONFIG=" + filepath.Join(home, "none")}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// render renders the chart; values are those of --set.
func render(t *testing.T, namespace string, flags ...string) []*unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	out, errOut, err := helm(t, append([]string{"template", "hub", chart, "--namespace", namespace, "--kube-version", "v1.36.3"}, flags...)...)
	g.Expect(err).NotTo(HaveOccurred(), errOut)
	objects, err := kustomize.Read([]byte(out))
	g.Expect(err).NotTo(HaveOccurred(), out)
	return objects
}

// set makes flags of values.
func set(values ...string) []string {
	var flags []string
	for _, value := range values {
		flags = append(flags, "--set", value)
	}
	return flags
}

// plain is an object without what the chart adds to each.
func plain(object *unstructured.Unstructured) map[string]any {
	object = object.DeepCopy()
	labels := object.GetLabels()
	for _, key := range []string{"helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/instance", "app.kubernetes.io/version"} {
		delete(labels, key)
	}
	if len(labels) == 0 {
		labels = nil
	}
	object.SetLabels(labels)
	annotations := object.GetAnnotations()
	delete(annotations, "helm.sh/resource-policy")
	if len(annotations) == 0 {
		annotations = nil
	}
	object.SetAnnotations(annotations)
	return object.Object
}

func byName(objects []*unstructured.Unstructured) map[string]map[string]any {
	found := map[string]map[string]any{}
	for _, object := range objects {
		found[object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName()] = plain(object)
	}
	return found
}

func one[T any](t *testing.T, objects []*unstructured.Unstructured, kind string) *T {
	t.Helper()
	g := NewWithT(t)
	at := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind })
	g.Expect(at).NotTo(Equal(-1), kind)
	made := new(T)
	g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(objects[at].Object, made, true)).To(Succeed())
	return made
}

func kinds(objects []*unstructured.Unstructured) []string {
	var list []string
	for _, object := range objects {
		list = append(list, object.GetKind())
	}
	return list
}

func TestTheChartIsLinted(t *testing.T) {
	g := NewWithT(t)
	for name, flags := range map[string][]string{"as it is": nil, "with everything": everything(t)} {
		out, errOut, err := helm(t, append([]string{"lint", "--strict", chart}, flags...)...)
		g.Expect(err).NotTo(HaveOccurred(), "%s: %s%s", name, out, errOut)
		g.Expect(out).To(ContainSubstring("0 chart(s) failed"))
	}
}

// everything switches everything on.
func everything(t *testing.T) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	NewWithT(t).Expect(os.WriteFile(file, []byte(everyValue), 0o600)).To(Succeed())
	return []string{"--values", file}
}

const everyValue = `
image: {repository: registry.example.com/ichor-hub, digest: "sha256:` + digest + `", pullPolicy: Always}
imagePullSecrets: [{name: pull}]
replicas: 3
logLevel: debug
externalURL: https://ichor.example.com
imageFactory: factory.example.com
extraArgs: ["--step-deadline=Draining=30m"]
oidc:
  issuerURL: https://id.example.com
  clientID: ichor
  clientSecret: {name: oidc}
  cliClientID: ichor-cli
  scopes: [openid, groups]
  usernameClaim: email
  usernamePrefix: "-"
  groupsClaim: groups
  groupsPrefix: "oidc:"
  ca: {configMap: id-ca}
tls:
  certManager:
    issuerRef: {name: corporate}
    dnsNames: [ichor.example.com]
service: {type: LoadBalancer, port: 8443, annotations: {example.com/internal: "true"}}
ingress: {enabled: true, className: nginx, host: ichor.example.com, tlsSecretName: ichor-example-com, annotations: {nginx.ingress.kubernetes.io/backend-protocol: HTTPS}}
crds: {clusterAPI: true}
policies: {createdBy: Always}
prometheus: {serviceMonitor: {enabled: true, labels: {release: prometheus}}, rules: {enabled: true}}
grafana: {dashboard: {enabled: true}}
nodeSelector: {kubernetes.io/os: linux}
priorityClassName: important
podAnnotations: {example.com/a: b}
podLabels: {example.com/c: d}
extraVolumes: [{name: more, emptyDir: {}}]
extraVolumeMounts: [{name: more, mountPath: /more}]
`

const digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// Without any value the chart installs what `kubectl apply -k config/default` does, but for the namespace, which is Helm's to make.
func TestTheChartIsConfigDefault(t *testing.T) {
	g := NewWithT(t)
	wanted, err := kustomize.Objects(filepath.Join(config, "default"))
	g.Expect(err).NotTo(HaveOccurred())
	wanted = slices.DeleteFunc(wanted, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Namespace" })
	want, got := byName(wanted), byName(render(t, namespace, set("image.tag=dev", "policies.createdBy=Never")...))
	for name := range want {
		g.Expect(got).To(HaveKey(name))
		g.Expect(got[name]).To(Equal(want[name]), name)
	}
	for name := range got {
		if !strings.HasSuffix(name, "ichor-hub-metrics-reader") {
			g.Expect(want).To(HaveKey(name))
		}
	}
}

// What is optional is what the other directories hold.
func TestTheRestIsOptional(t *testing.T) {
	g := NewWithT(t)
	got := byName(render(t, namespace, set("policies.createdBy=Always", "crds.clusterAPI=true", "prometheus.serviceMonitor.enabled=true", "prometheus.rules.enabled=true",
		"grafana.dashboard.enabled=true")...))
	for _, dir := range []string{"policies/mutating", "crd/cluster-api", "prometheus", "grafana"} {
		wanted, err := kustomize.Objects(filepath.Join(config, dir))
		g.Expect(err).NotTo(HaveOccurred())
		for name, object := range byName(wanted) {
			g.Expect(got).To(HaveKey(name))
			g.Expect(got[name]).To(Equal(object), name)
		}
	}
}

func TestEverythingIsInTheNamespaceOfTheRelease(t *testing.T) {
	g := NewWithT(t)
	out, errOut, err := helm(t, append([]string{"template", "hub", chart, "--namespace", "elsewhere"}, everything(t)...)...)
	g.Expect(err).NotTo(HaveOccurred(), errOut)
	g.Expect(out).NotTo(ContainSubstring(namespace))
	for _, object := range render(t, "elsewhere", everything(t)...) {
		if object.GetNamespace() != "" {
			g.Expect(object.GetNamespace()).To(Equal("elsewhere"), object.GetName())
		}
	}
}

func TestValuesReachTheObjects(t *testing.T) {
	g := NewWithT(t)
	objects := render(t, namespace, everything(t)...)
	decoder := serializer.NewCodecFactory(scheme.New(), serializer.EnableStrict).UniversalDeserializer()
	for _, object := range objects {
		if slices.Contains([]string{"Certificate", "Issuer", "ServiceMonitor", "PrometheusRule", "CustomResourceDefinition"}, object.GetKind()) {
			continue
		}
		content, err := object.MarshalJSON()
		g.Expect(err).NotTo(HaveOccurred())
		_, _, err = decoder.Decode(content, nil, nil)
		g.Expect(err).NotTo(HaveOccurred(), object.GetName())
	}
	deployment := one[appsv1.Deployment](t, objects, "Deployment")
	pod := deployment.Spec.Template
	container := pod.Spec.Containers[0]
	g.Expect(*deployment.Spec.Replicas).To(BeEquivalentTo(3))
	g.Expect(container.Image).To(Equal("registry.example.com/ichor-hub@sha256:" + digest))
	g.Expect(container.Args).To(ContainElements(
		"--log-level=debug", "--external-url=https://ichor.example.com", "--image-factory=factory.example.com", "--oidc-issuer-url=https://id.example.com",
		"--oidc-client-id=ichor", "--oidc-cli-client-id=ichor-cli", "--oidc-scopes=openid,groups", "--oidc-username-claim=email", "--oidc-username-prefix=-",
		"--oidc-groups-claim=groups", "--oidc-groups-prefix=oidc:", "--oidc-client-secret-file=/run/ichor/oidc-client/client-secret",
		"--oidc-ca-file=/run/ichor/oidc-ca/ca.crt", "--step-deadline=Draining=30m",
	))
	mounts := map[string]bool{}
	for _, mount := range container.VolumeMounts {
		mounts[mount.Name] = true
	}
	g.Expect(pod.Spec.Volumes).To(HaveLen(len(mounts)))
	for _, volume := range pod.Spec.Volumes {
		g.Expect(mounts).To(HaveKey(volume.Name))
	}
	g.Expect(pod.Annotations).To(HaveKeyWithValue("example.com/a", "b"))
	g.Expect(pod.Labels).To(And(HaveKeyWithValue("example.com/c", "d"), HaveKeyWithValue("app.kubernetes.io/name", "ichor-hub")))
	g.Expect(pod.Spec.PriorityClassName).To(Equal("important"))
	g.Expect(pod.Spec.NodeSelector).To(HaveKeyWithValue("kubernetes.io/os", "linux"))
	g.Expect(pod.Spec.ImagePullSecrets[0].Name).To(Equal("pull"))

	ingress := one[networkingv1.Ingress](t, objects, "Ingress")
	g.Expect(*ingress.Spec.IngressClassName).To(Equal("nginx"))
	g.Expect(ingress.Spec.Rules[0].Host).To(Equal("ichor.example.com"))
	certificate := objects[slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Certificate" })]
	names, _, _ := unstructured.NestedStringSlice(certificate.Object, "spec", "dnsNames")
	g.Expect(names).To(ContainElements("ichor.example.com", "ichor-hub.ichor-system.svc"))
	g.Expect(certificate.Object["spec"]).To(HaveKeyWithValue("issuerRef", map[string]any{"name": "corporate", "kind": "ClusterIssuer", "group": "cert-manager.io"}))
	g.Expect(kinds(objects)).NotTo(ContainElement("Issuer"), "somebody else signs")
}

func TestWhatIsSwitchedOffIsNotThere(t *testing.T) {
	g := NewWithT(t)
	objects := render(t, namespace, set("crds.install=false", "tls.certManager.enabled=false", "podDisruptionBudget.enabled=false", "networkPolicy.enabled=false", "policies.createdBy=Never")...)
	g.Expect(kinds(objects)).NotTo(ContainElement(BeElementOf(
		"CustomResourceDefinition", "Certificate", "Issuer", "PodDisruptionBudget", "NetworkPolicy", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
	)))
}

// The policy that writes is installed where the API server knows its kind.
func TestThePolicyThatWritesNeedsAnAPIServerThatKnowsIt(t *testing.T) {
	g := NewWithT(t)
	const kind = "MutatingAdmissionPolicy"
	g.Expect(kinds(render(t, namespace))).NotTo(ContainElement(kind))
	g.Expect(kinds(render(t, namespace, "--api-versions", "admissionregistration.k8s.io/v1/"+kind))).To(ContainElements(kind, kind+"Binding"))
}

// Definitions stay when the release goes.
func TestDefinitionsStay(t *testing.T) {
	g := NewWithT(t)
	for _, object := range render(t, namespace, set("crds.clusterAPI=true")...) {
		if object.GetKind() == "CustomResourceDefinition" {
			g.Expect(object.GetAnnotations()).To(HaveKeyWithValue("helm.sh/resource-policy", "keep"), object.GetName())
		}
	}
}

func TestValuesThatCannotBe(t *testing.T) {
	for name, row := range map[string]struct{ value, says string }{
		"no replica":                    {"replicas=0", "replicas"},
		"a typo":                        {"replica=3", "replica"},
		"plain HTTP":                    {"externalURL=http://ichor.example.com", "externalURL"},
		"an unknown level":              {"logLevel=loud", "logLevel"},
		"a digest that is none":         {"image.digest=latest", "digest"},
		"a provider without a client":   {"oidc.issuerURL=https://id.example.com,externalURL=https://ichor.example.com", "oidc.clientID: it is needed"},
		"a provider without a way back": {"oidc.issuerURL=https://id.example.com,oidc.clientID=ichor", "externalURL: it is needed"},
		"an ingress for nothing":        {"ingress.enabled=true", "ingress.host: it is needed"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, errOut, err := helm(t, append([]string{"template", "hub", chart}, set(row.value)...)...)
			g.Expect(err).To(HaveOccurred())
			g.Expect(errOut).To(ContainSubstring(row.says))
		})
	}
}

// A package carries its version to the image.
func TestThePackageHasTheVersionOfTheRelease(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	_, errOut, err := helm(t, "package", chart, "--destination", dir, "--version", "0.1.0", "--app-version", "v0.1.0")
	g.Expect(err).NotTo(HaveOccurred(), errOut)
	out, errOut, err := helm(t, "template", "hub", filepath.Join(dir, "ichor-hub-0.1.0.tgz"))
	g.Expect(err).NotTo(HaveOccurred(), errOut)
	g.Expect(out).To(And(ContainSubstring("image: ichor.maesh.dev/ichor-hub:v0.1.0"), ContainSubstring("helm.sh/chart: ichor-hub-0.1.0")))
}
