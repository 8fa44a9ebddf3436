// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/test/framework"
)

var _ = Describe("kubectl", Ordered, func() {
	var w *world
	BeforeAll(func(ctx SpecContext) { w = install(ctx, one) }, NodeTimeout(time.Minute))

	It("knows the hub's objects on the management API", func(ctx SpecContext) {
		out := kubectl(ctx, w.Kubeconfig(), "get", "talosclusters,talosmachines,clusters.cluster.x-k8s.io")
		Expect(out).To(And(
			MatchRegexp(`taloscluster.ichor.maesh.dev/one +True +\["v1.13.6"\] .* 4 +4`),
			MatchRegexp(`talosmachine.ichor.maesh.dev/one-worker-1 +one +worker-1 +Worker +True +v1.13.6`),
			ContainSubstring("cluster.cluster.x-k8s.io/one"),
		))
		Expect(kubectl(ctx, w.Kubeconfig(), "explain", "talosoperation.spec.maxUnavailable")).To(ContainSubstring("how many workers may be away at once"))
	})

	It("prints what a simulated cluster serves, as kubectl prints it elsewhere", func(ctx SpecContext) {
		kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(os.WriteFile(kubeconfig, w.Fleet.Cluster("one").Kubeconfig(), 0o600)).To(Succeed())
		budget := filepath.Join(GinkgoT().TempDir(), "budget.yaml")
		Expect(os.WriteFile(budget, []byte(webBudget), 0o600)).To(Succeed())
		kubectl(ctx, kubeconfig, "create", "--validate=false", "-f", budget) // The simulator has no OpenAPI to validate with.
		for resource, columns := range map[string]string{
			"namespaces":                `NAME +STATUS +AGE\ndefault +Active +\w+`,
			"nodes":                     `NAME +STATUS +ROLES +AGE +VERSION\ncp-1 +Ready +control-plane +\w+ +v1`,
			"pods":                      `NAME +READY +STATUS +RESTARTS +AGE\nweb-\S+ +1/1 +Running +0 +\w+`,
			"deployments":               `NAME +READY +UP-TO-DATE +AVAILABLE +AGE\nweb +6/6 +6 +6 +\w+`,
			"replicasets":               `NAME +DESIRED +CURRENT +READY +AGE\nweb-\S+ +6 +6 +6 +\w+`,
			"poddisruptionbudgets":      `NAME +MIN AVAILABLE +MAX UNAVAILABLE +ALLOWED DISRUPTIONS +AGE\nweb +5 +N/A +1 +\w+`,
			"daemonsets -n kube-system": `NAME +DESIRED +CURRENT +READY +UP-TO-DATE +AVAILABLE +NODE SELECTOR +AGE\n\S+ +4 +4 +4 +4 +4 +<none> +\w+`,
		} {
			Eventually(func() string {
				return kubectl(ctx, kubeconfig, append([]string{"get"}, strings.Fields(resource)...)...)
			}).WithContext(ctx).Should(MatchRegexp("^"+columns), resource)
		}
	}, SpecTimeout(time.Minute))

	It("watches the nodes of a simulated cluster through a reboot", func(ctx SpecContext) {
		kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(os.WriteFile(kubeconfig, w.Fleet.Cluster("one").Kubeconfig(), 0o600)).To(Succeed())
		Expect(kubectl(ctx, kubeconfig, "get", "nodes,pods", "-A", "-o", "wide")).To(And(ContainSubstring("Talos (v1.13.6)"), ContainSubstring("kube-apiserver-cp-1")))

		watching, cancel := context.WithCancel(ctx)
		defer cancel()
		var seen transcript
		cmd := kubectlCommand(watching, kubeconfig, "get", "nodes", "-w")
		cmd.Stdout = &seen
		Expect(cmd.Start()).To(Succeed())
		Eventually(seen.String).WithContext(ctx).Should(ContainSubstring("worker-1"))
		w.ichor(ctx, 0, "node", "reboot", "worker-1", "--cluster", "one", "--follow", "--yes")
		Eventually(seen.String).WithContext(ctx).Should(And(
			MatchRegexp(`worker-1 +Ready,SchedulingDisabled`), MatchRegexp(`worker-1 +NotReady,SchedulingDisabled`), MatchRegexp(`(?s)worker-1 +NotReady,SchedulingDisabled.*worker-1 +Ready `),
		))
		cancel()
		Expect(cmd.Wait()).NotTo(Succeed(), "it was ended")
	}, SpecTimeout(time.Minute))
})

const webBudget = `apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 5, selector: {matchLabels: {app: web}}}
`

func kubectlCommand(ctx context.Context, kubeconfig string, args ...string) *exec.Cmd {
	GinkgoHelper()
	binary, err := framework.Binary("kubectl")
	Expect(err).NotTo(HaveOccurred())
	return exec.CommandContext(ctx, binary, append([]string{"--kubeconfig", kubeconfig}, args...)...)
}

func kubectl(ctx context.Context, kubeconfig string, args ...string) string {
	GinkgoHelper()
	out, err := kubectlCommand(ctx, kubeconfig, args...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	return string(out)
}

// transcript collects what a running command prints.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(p)
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
