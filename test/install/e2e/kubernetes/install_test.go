// SPDX-License-Identifier: Apache-2.0

// Package kubernetes_test installs config/default on a real API server, and runs what its Deployment runs: the same arguments, with the token
// of the same ServiceAccount. The API server has no pods, so the processes are started here.
package kubernetes_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/hack/kustomize"
	"ichor.maesh.dev/hub/hub/standalone/pki"
	"ichor.maesh.dev/hub/test/framework"
)

const (
	config    = "../../../../config"
	namespace = "ichor-system"

	// within is far beyond what anything here takes.
	within = 30 * time.Second
)

func TestMain(m *testing.M) {
	if !framework.MayRun(os.Stderr, "kubectl") {
		if os.Getenv(framework.RequireVariable) == "1" {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// podless are the kinds of config/default that an API server without pods does not have.
var podless = []string{"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy", "Issuer", "Certificate"}

// world is a management API on which the hub is installed.
type world struct {
	*WithT

	ctx         context.Context
	plane       *framework.Plane
	kube        kubernetes.Interface
	args        []string // Of the Deployment.
	dir         string
	certificate pki.SelfSigned
}

func install(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	w := &world{WithT: NewWithT(t), ctx: ctx, dir: t.TempDir()}
	var err error
	w.plane, err = framework.StartPlane(ctx)
	w.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(w.plane.Stop()).To(Succeed()) })
	w.kube, err = kubernetes.NewForConfig(w.plane.Config)
	w.Expect(err).NotTo(HaveOccurred())
	w.certificate = pki.SelfSignedIn(w.dir)
	w.Expect(w.certificate.Ensure([]string{"127.0.0.1"}, time.Now())).To(Succeed())

	objects, err := kustomize.Objects(filepath.Join(config, "default"))
	w.Expect(err).NotTo(HaveOccurred())
	var manifests bytes.Buffer
	for _, object := range objects {
		if object.GetKind() == "Deployment" {
			deployment := &appsv1.Deployment{}
			w.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment)).To(Succeed())
			w.args = deployment.Spec.Template.Spec.Containers[0].Args
		}
		if !slices.Contains(podless, object.GetKind()) {
			w.write(&manifests, object)
		}
	}
	w.kubectl(&manifests, "apply", "--server-side", "--force-conflicts", "-f", "-")
	return w
}

func (w *world) write(b *bytes.Buffer, object *unstructured.Unstructured) {
	content, err := object.MarshalJSON()
	w.Expect(err).NotTo(HaveOccurred())
	fmt.Fprintf(b, "---\n%s\n", content)
}

func (w *world) kubectl(in io.Reader, args ...string) string {
	binary, err := framework.Binary("kubectl")
	w.Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(w.ctx, binary, append([]string{"--kubeconfig", w.plane.Kubeconfig}, args...)...)
	cmd.Stdin = in
	out, err := cmd.CombinedOutput()
	w.Expect(err).NotTo(HaveOccurred(), string(out))
	return string(out)
}

// token is one of a ServiceAccount.
func (w *world) token(namespace, account string) string {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3600)}}
	answer, err := w.kube.CoreV1().ServiceAccounts(namespace).CreateToken(w.ctx, account, request, metav1.CreateOptions{})
	w.Expect(err).NotTo(HaveOccurred())
	return answer.Status.Token
}

// inPod is the access that a pod of the Deployment has.
func (w *world) inPod() string {
	access := api.NewConfig()
	access.Clusters["pod"] = &api.Cluster{Server: w.plane.Config.Host, CertificateAuthority: w.plane.Config.CAFile, CertificateAuthorityData: w.plane.Config.CAData}
	access.AuthInfos["pod"] = &api.AuthInfo{Token: w.token(namespace, "ichor-hub")}
	access.Contexts["pod"] = &api.Context{Cluster: "pod", AuthInfo: "pod", Namespace: namespace}
	access.CurrentContext = "pod"
	path := filepath.Join(w.dir, "pod.kubeconfig")
	w.Expect(clientcmd.WriteToFile(*access, path)).To(Succeed())
	return path
}

// replica is a process that stands for a pod.
type replica struct {
	*world

	address, metrics, log string
}

// start starts what a pod of the Deployment runs, on addresses of its own.
func (w *world) start(t *testing.T, kubeconfig, name string) *replica {
	t.Helper()
	r := &replica{world: w, log: filepath.Join(w.dir, name+".log")}
	var err error
	r.address, err = framework.FreeAddress(w.ctx)
	w.Expect(err).NotTo(HaveOccurred())
	free, err := framework.FreeAddress(w.ctx)
	w.Expect(err).NotTo(HaveOccurred())
	_, port, _ := strings.Cut(free, ":")
	r.metrics = "127.0.0.1:" + port

	args := slices.Clone(w.args)
	for old, instead := range map[string]string{
		"--listen=:8443": "--listen=" + r.address, "--metrics-bind-address=:9443": "--metrics-bind-address=:" + port,
		"--tls-cert-file=/run/ichor/tls/tls.crt": "--tls-cert-file=" + w.certificate.Pair, "--tls-private-key-file=/run/ichor/tls/tls.key": "--tls-private-key-file=" + w.certificate.Pair,
	} {
		at := slices.Index(args, old)
		w.Expect(at).NotTo(Equal(-1), old)
		args[at] = instead
	}
	binary, err := framework.Binary("ichor-hub")
	w.Expect(err).NotTo(HaveOccurred())
	file, err := os.Create(r.log)
	w.Expect(err).NotTo(HaveOccurred())
	cmd := exec.Command(binary, append(args, "--kubeconfig", kubeconfig)...)
	cmd.Stdout, cmd.Stderr = file, file
	cmd.Env = []string{} // A pod has no home, and no way to write anywhere.
	cmd.Dir = "/"
	w.Expect(cmd.Start()).To(Succeed())
	t.Cleanup(func() {
		w := NewWithT(t)
		w.Expect(cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
		w.Expect(cmd.Wait()).To(Succeed(), "a pod that is told to end ends well")
		w.Expect(file.Close()).To(Succeed())
	})
	return r
}

// get asks a replica, and trusts its certificate.
func (r *replica) get(url, token string) (status int, body string) {
	authority, err := os.ReadFile(r.certificate.Certificate)
	r.Expect(err).NotTo(HaveOccurred())
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(r.ctx, http.MethodGet, url, http.NoBody)
	r.Expect(err).NotTo(HaveOccurred())
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close() //nolint:errcheck // It has been read.
	content, err := io.ReadAll(response.Body)
	r.Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(content)
}

func (r *replica) awaitReady() {
	r.Eventually(func() string {
		status, body := r.get("https://"+r.address+"/readyz", "")
		return fmt.Sprintf("%d %s", status, body)
	}).WithContext(r.ctx).WithTimeout(within).Should(HavePrefix("200"), func() string {
		log, _ := os.ReadFile(r.log)
		return string(log)
	})
}

// The Deployment's arguments, its ServiceAccount and the shipped rights are enough to serve and to lead, and let metrics be read by those alone
// who may.
func TestWhatIsInstalledRuns(t *testing.T) {
	w := install(t)
	kubeconfig := w.inPod()
	first := w.start(t, kubeconfig, "one")
	second := w.start(t, kubeconfig, "two")
	first.awaitReady()
	second.awaitReady()

	_, err := w.kube.CoreV1().Secrets(namespace).Get(w.ctx, "ichor-hub-session", metav1.GetOptions{})
	w.Expect(err).NotTo(HaveOccurred(), "both seal sessions with the same key")
	w.Eventually(func() string {
		lease, err := w.kube.CoordinationV1().Leases(namespace).Get(w.ctx, "ichor-hub", metav1.GetOptions{})
		if err != nil {
			return ""
		}
		return ptr.Deref(lease.Spec.HolderIdentity, "")
	}).WithContext(w.ctx).WithTimeout(within).ShouldNot(BeEmpty(), "one leads")

	w.metricsAreGuarded(first)
	for _, r := range []*replica{first, second} {
		log, err := os.ReadFile(r.log)
		w.Expect(err).NotTo(HaveOccurred())
		w.Expect(string(log)).NotTo(Or(ContainSubstring("forbidden"), ContainSubstring("is not allowed"), ContainSubstring("read-only file system"), ContainSubstring("permission denied")))
	}
	w.tokensActAsTheirAccounts(first)
}

// tokensActAsTheirAccounts has scripts ask for what the management API reads as them: their account's rights decide.
func (w *world) tokensActAsTheirAccounts(r *replica) {
	w.kubectl(nil, "create", "namespace", "automation")
	for _, account := range []string{"nightly", "nobody"} {
		w.kubectl(nil, "create", "serviceaccount", account, "--namespace=automation")
	}
	w.kubectl(nil, "create", "rolebinding", "nightly", "--clusterrole=ichor-viewer", "--serviceaccount=automation:nightly", "--namespace=automation")
	asked := url.Values{"encoding": {"json"}, "message": {`{"ref":{"namespace":"automation","name":"none"}}`}}
	snapshot := "https://" + r.address + "/ichor.v1alpha1.SnapshotService/GetSnapshot?" + asked.Encode()
	status, body := r.get(snapshot, w.token("automation", "nightly"))
	w.Expect(status).To(Equal(http.StatusNotFound), body)
	status, body = r.get(snapshot, w.token("automation", "nobody"))
	w.Expect(status).To(Equal(http.StatusForbidden), body)
}

func (w *world) metricsAreGuarded(r *replica) {
	metrics := "https://" + r.metrics + "/metrics"
	w.kubectl(nil, "create", "namespace", "monitoring")
	for _, account := range []string{"prometheus", "nobody"} {
		w.kubectl(nil, "create", "serviceaccount", account, "--namespace=monitoring")
	}
	var manifests bytes.Buffer
	objects, err := kustomize.Objects(filepath.Join(config, "prometheus"))
	w.Expect(err).NotTo(HaveOccurred())
	for _, object := range objects {
		if object.GetKind() == "ClusterRole" {
			w.write(&manifests, object)
		}
	}
	w.kubectl(&manifests, "apply", "-f", "-")
	w.kubectl(nil, "create", "clusterrolebinding", "prometheus", "--clusterrole=ichor-hub-metrics-reader", "--serviceaccount=monitoring:prometheus")

	status, _ := r.get(metrics, "")
	w.Expect(status).To(Equal(http.StatusUnauthorized))
	status, made := r.get(metrics, "made-up") // controller-runtime answers 500, since the API server cannot say whose it is.
	w.Expect(status).NotTo(Equal(http.StatusOK))
	w.Expect(made).NotTo(ContainSubstring("# HELP"))
	status, _ = r.get(metrics, w.token("monitoring", "nobody"))
	w.Expect(status).To(Equal(http.StatusForbidden))
	status, body := r.get(metrics, w.token("monitoring", "prometheus"))
	w.Expect(status).To(Equal(http.StatusOK))
	w.Expect(body).To(And(ContainSubstring("leader_election_master_status"), ContainSubstring("controller_runtime_reconcile_errors_total")), "alerts ask for them")
	status, body = r.get("http://"+r.metrics+"/metrics", "")
	w.Expect(status).To(Equal(http.StatusBadRequest), body)
}

// What config/samples shows is what the API server takes.
func TestSamplesAreTaken(t *testing.T) {
	w := install(t)
	out := w.kubectl(nil, "apply", "--server-side", "--dry-run=server", "-k", filepath.Join(config, "samples"))
	w.Expect(out).To(And(
		ContainSubstring("cluster.cluster.x-k8s.io/prod-1 serverside-applied"), ContainSubstring("taloscluster.ichor.maesh.dev/prod-1 serverside-applied"),
		ContainSubstring("talosoperation.ichor.maesh.dev/prod-1-talos-v1-14-1 serverside-applied"), ContainSubstring("etcdsnapshot.ichor.maesh.dev/prod-1-before-migration serverside-applied"),
	))
	// The namespace is held to the strictest standard.
	system, err := w.kube.CoreV1().Namespaces().Get(w.ctx, namespace, metav1.GetOptions{})
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(system.Labels).To(HaveKeyWithValue("pod-security.kubernetes.io/enforce", "restricted"))
	w.Expect(system.Status.Phase).NotTo(Equal(corev1.NamespaceTerminating))
}
