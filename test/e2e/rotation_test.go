// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/framework"
	"ichor.maesh.dev/hub/test/sim/journal"
)

// user asks a cluster for something, again and again, by credentials that may change. A connection that breaks is made anew a few times, with the
// credentials of then; what still fails is kept.
type user struct {
	mu       sync.Mutex
	asked    int
	failures []string
}

const (
	userPause = 50 * time.Millisecond
	userTries = 20
)

// use begins to ask until the test is over.
func (w *world) use(ctx context.Context, credentials func(context.Context) ([]byte, error), ask func(context.Context, []byte) error) *user {
	u := &user{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	DeferCleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			u.once(ctx, credentials, ask)
			pause(ctx)
		}
	}()
	return u
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(userPause):
	}
}

func (u *user) once(ctx context.Context, credentials func(context.Context) ([]byte, error), ask func(context.Context, []byte) error) {
	var err error
	for range userTries {
		var data []byte
		if data, err = credentials(ctx); err == nil {
			err = ask(ctx, data)
		}
		if err == nil || ctx.Err() != nil {
			break
		}
		pause(ctx)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked++
	if err != nil && ctx.Err() == nil {
		u.failures = append(u.failures, err.Error())
	}
}

// Failures are what was asked for in vain, and Asked how often it was asked.
func (u *user) Failures() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]string{}, u.failures...)
}

func (u *user) Asked() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.asked
}

// secretOf reads a key of a Secret as it is now.
func (w *world) secretOf(name, key string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		secret := &corev1.Secret{}
		err := w.client.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, secret)
		return secret.Data[key], err
	}
}

func kept(data []byte) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) { return data, nil }
}

// askTalos asks every machine for its version, by way of the endpoints.
func (w *world) askTalos(cluster string) func(context.Context, []byte) error {
	return func(ctx context.Context, talosconfig []byte) error {
		config, err := clientconfig.FromBytes(talosconfig)
		if err != nil {
			return err
		}
		c, err := talosclient.New(ctx, talosclient.WithConfig(config))
		if err != nil {
			return err
		}
		defer c.Close() //nolint:errcheck // Nothing is lost with it.
		for _, node := range w.Fleet.Cluster(cluster).Nodes() {
			bounded, cancel := context.WithTimeout(talosclient.WithNode(ctx, node.Address()), 5*time.Second)
			_, err := c.Version(bounded)
			cancel()
			if err != nil {
				return fmt.Errorf("%s: %w", node.Name(), err)
			}
		}
		return nil
	}
}

// askKubernetes lists the Nodes.
func askKubernetes(ctx context.Context, kubeconfig []byte) error {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return err
	}
	config.Timeout = 5 * time.Second
	k, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = k.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	return err
}

// applied waits until a cluster was given so many configs, and returns how many it was given before that.
func (w *world) applied(ctx context.Context, cluster string, count int) {
	GinkgoHelper()
	_, err := w.Fleet.Journal().WaitN(ctx, journal.Filter{Cluster: cluster, Method: applyMethod, Done: true}, count)
	Expect(err).NotTo(HaveOccurred())
}

// says waits until the CLI tells something of an operation.
func (w *world) says(ctx context.Context, op *v1alpha1.TalosOperation, words ...string) {
	GinkgoHelper()
	var all []OmegaMatcher
	for _, word := range words {
		all = append(all, ContainSubstring(word))
	}
	Eventually(func() string { return w.ichor(ctx, 0, "operation", "get", op.Name).Out }).WithContext(ctx).WithTimeout(2 * time.Minute).Should(And(all...))
}

// passed waits until a stage of an operation is over.
func (w *world) passed(ctx context.Context, op *v1alpha1.TalosOperation, stage string) {
	GinkgoHelper()
	Eventually(w.get(ctx, op)).WithContext(ctx).WithTimeout(2 * time.Minute).Should(HaveField("Status.CompletedStages", ContainElement(stage)))
}

var _ = Describe("Rotating certificate authorities", func() {
	It("of the Talos API locks nobody out who keeps up, with the hub killed in every pass and a machine down", func(ctx SpecContext) {
		w := install(ctx, three)
		ask := w.askTalos("three")
		before := w.Fleet.Cluster("three").Talosconfig()
		follower := w.use(ctx, w.secretOf("three-talosconfig", "talosconfig"), ask)

		By("nobody rotates by accident, and the plan says what stays")
		Expect(w.ichor(ctx, 2, "cluster", "rotate-ca", "three", "--authority", "talos", "--yes").Err).To(ContainSubstring("add --confirm three"))
		plan := w.ichor(ctx, 0, "operation", "plan", "rotate-ca", "three", "--authority", "talos").Out
		Expect(plan).To(And(ContainSubstring("certificate authorities change"), ContainSubstring("not rotated: the authorities of etcd and of the API aggregator")))
		w.ichor(ctx, 0, "cluster", "rotate-ca", "three", "--authority", "talos", "--confirm", "three")
		op, err := w.operation(ctx, "three")
		Expect(err).NotTo(HaveOccurred())

		w.applied(ctx, "three", 2)
		w.kill(ctx)
		w.passed(ctx, op, "TalosTrust")
		trusting, err := w.secretOf("three-talosconfig", "talosconfig")(ctx)
		Expect(err).NotTo(HaveOccurred())
		keeper := w.use(ctx, kept(trusting), ask)
		w.applied(ctx, "three", 7)
		w.kill(ctx)

		By("people are waited for; what they had before the first pass cannot tell servers any more")
		w.says(ctx, op, "CredentialsConfirmed", "ichor operation confirm "+op.Name)
		w.kill(ctx)
		Expect(ask(ctx, before)).To(MatchError(ContainSubstring("certificate signed by unknown authority")))
		Expect(keeper.Failures()).To(BeEmpty(), "who has the client certificate of before, and trusts both, goes on")
		Expect(keeper.Asked()).To(BeNumerically(">", 3))
		Expect(follower.Failures()).To(BeEmpty())
		Expect(w.ichor(ctx, 1, "upgrade", "talos", "v1.14.1", "--cluster", "three", "--yes").Err).To(ContainSubstring("OperationUnfinished"))

		By("a machine that is down keeps the old one from being dropped")
		Expect(w.Fleet.Power("three", "worker-2", false)).To(Succeed())
		w.ichor(ctx, 0, "operation", "confirm", op.Name)
		w.says(ctx, op, "RotationPass", "three-worker-2 does not answer")
		given := len(w.order("three", applyMethod))
		Consistently(func() []string { return w.order("three", applyMethod) }, time.Second).Should(HaveLen(given))
		Expect(w.Fleet.Power("three", "worker-2", true)).To(Succeed())
		w.applied(ctx, "three", 12)
		w.kill(ctx)
		w.ichor(ctx, 0, "operation", "watch", op.Name)

		By("it is over: the new ones work and the old ones do not")
		Eventually(keeper.Failures).WithContext(ctx).ShouldNot(BeEmpty())
		Expect(ask(ctx, trusting)).NotTo(Succeed())
		after, err := w.secretOf("three-talosconfig", "talosconfig")(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(ask(ctx, after)).To(Succeed())
		Expect(w.order("three", applyMethod)).To(HaveLen(15), "five machines, three passes, and nothing twice")
		w.expectBundle(ctx, "three")
		w.ichor(ctx, 0, "node", "reboot", "worker-1", "--cluster", "three", "--yes", "--follow")
	}, SpecTimeout(6*time.Minute))

	It("of the Kubernetes API keeps kubelets and credentials in force, with the hub killed in every pass", func(ctx SpecContext) {
		w := install(ctx, three)
		before := w.Fleet.Cluster("three").Kubeconfig()
		follower := w.use(ctx, w.secretOf("three-kubeconfig", "value"), askKubernetes)
		w.ichor(ctx, 0, "cluster", "rotate-ca", "three", "--authority", "kubernetes", "--confirm", "three")
		op, err := w.operation(ctx, "three")
		Expect(err).NotTo(HaveOccurred())
		w.applied(ctx, "three", 2)
		w.kill(ctx)
		w.passed(ctx, op, "KubernetesTrust")
		trusting, err := w.secretOf("three-kubeconfig", "value")(ctx)
		Expect(err).NotTo(HaveOccurred())
		keeper := w.use(ctx, kept(trusting), askKubernetes)
		w.applied(ctx, "three", 7)
		w.kill(ctx)
		w.says(ctx, op, "CredentialsConfirmed")
		Expect(askKubernetes(ctx, before)).To(MatchError(ContainSubstring("certificate signed by unknown authority")))
		Expect(keeper.Failures()).To(BeEmpty())
		Expect(follower.Failures()).To(BeEmpty())
		w.ichor(ctx, 0, "operation", "confirm", op.Name)
		w.applied(ctx, "three", 11)
		w.kill(ctx)
		w.ichor(ctx, 0, "operation", "watch", op.Name)
		Eventually(keeper.Failures).WithContext(ctx).ShouldNot(BeEmpty())
		Expect(askKubernetes(ctx, trusting)).NotTo(Succeed())
		after, err := w.secretOf("three-kubeconfig", "value")(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(askKubernetes(ctx, after)).To(Succeed())
		Expect(follower.Failures()).To(BeEmpty())
		for _, node := range w.Fleet.Cluster("three").KubernetesNodes() {
			Expect(node.Spec.Unschedulable).To(BeFalse())
		}
		w.expectBundle(ctx, "three")
		w.ichor(ctx, 0, "node", "reboot", "worker-1", "--cluster", "three", "--yes", "--follow")
	}, SpecTimeout(6*time.Minute))

	It("is turned back while people are waited for, and what they have works still", func(ctx SpecContext) {
		w := install(ctx, one)
		before := w.Fleet.Cluster("one").Talosconfig()
		w.ichor(ctx, 0, "cluster", "rotate-ca", "one", "--authority", "talos", "--confirm", "one")
		op, err := w.operation(ctx, "one")
		Expect(err).NotTo(HaveOccurred())
		w.says(ctx, op, "CredentialsConfirmed")
		w.ichor(ctx, 0, "operation", "turn-back", op.Name, "--yes")
		w.applied(ctx, "one", 10)
		w.kill(ctx)
		w.ichor(ctx, 0, "operation", "watch", op.Name)
		w.says(ctx, op, "turned back on request: the cluster is what it was before")
		Expect(w.askTalos("one")(ctx, before)).To(Succeed())
		now, err := w.secretOf("one-talosconfig", "talosconfig")(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.askTalos("one")(ctx, now)).To(Succeed())
		Expect(w.ichor(ctx, 1, "operation", "turn-back", op.Name, "--yes").Err).To(ContainSubstring("is completed"))
	}, SpecTimeout(5*time.Minute))

	It("gives the real talosctl a talosconfig that works, and takes the old one from it", func(ctx SpecContext) {
		w := install(ctx, one)
		w.ichor(ctx, 0, "cluster", "rotate-ca", "one", "--authority", "talos", "--confirm", "one")
		op, err := w.operation(ctx, "one")
		Expect(err).NotTo(HaveOccurred())
		w.says(ctx, op, "CredentialsConfirmed")
		w.ichor(ctx, 0, "operation", "confirm", op.Name)
		w.ichor(ctx, 0, "operation", "watch", op.Name)
		after, err := w.secretOf("one-talosconfig", "talosconfig")(ctx)
		Expect(err).NotTo(HaveOccurred())
		out, err := w.talosctlWith(ctx, after, "one", "version", "--short")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(ContainSubstring("v1.13.6"))
		out, err = w.talosctlWith(ctx, w.Fleet.Cluster("one").Talosconfig(), "one", "version", "--short")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("certificate"))
	}, SpecTimeout(4*time.Minute))
})

// expectBundle expects the bundle of a cluster's secrets to be one that people have to export, and one of the new authorities.
func (w *world) expectBundle(ctx context.Context, cluster string) {
	GinkgoHelper()
	Eventually(func() string { return w.ichor(ctx, 0, "cluster", "get", cluster).Out }).WithContext(ctx).Should(MatchRegexp(`BundleBackupStale +True +Stale`))
	file := filepath.Join(GinkgoT().TempDir(), "bundle.yaml")
	w.ichor(ctx, 0, "cluster", "bundle-export", cluster, "--file", file)
	data, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	Expect(strings.Count(string(data), "crt:")).To(BeNumerically(">=", 4))
	Eventually(func() string { return w.ichor(ctx, 0, "cluster", "get", cluster).Out }).WithContext(ctx).Should(MatchRegexp(`BundleBackupStale +False +Current`))
}

// talosctlWith runs the real client with a talosconfig.
func (w *world) talosctlWith(ctx context.Context, talosconfig []byte, cluster string, args ...string) (string, error) {
	GinkgoHelper()
	binary, err := framework.Binary("talosctl")
	Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(GinkgoT().TempDir(), "talosconfig")
	Expect(os.WriteFile(file, talosconfig, 0o600)).To(Succeed())
	args = append([]string{"--talosconfig", file, "-n", w.Fleet.Cluster(cluster).Nodes()[0].Address()}, args...)
	out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput()
	return string(out), err
}
