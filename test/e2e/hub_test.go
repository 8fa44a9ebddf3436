// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/e2e"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim/journal"
)

var _ = Describe("The CLI on a hub", func() {
	It("says and refuses the same as on the management API", func(ctx SpecContext) {
		w := install(ctx, one)
		Expect(w.hub(ctx, 1, "cluster", "list").Err).To(ContainSubstring("sign in to a hub with: ichor login URL"))
		Expect(w.SignIn(ctx)).To(Succeed())
		Expect(w.hub(ctx, 0, "whoami").Out).To(MatchRegexp(`User: +ichor-admin\n`))
		for _, args := range [][]string{
			{"cluster", "list", "-o", "json"}, {"machine", "list", "-o", "yaml"}, {"operation", "list", "-o", "jsonl"}, {"machine", "get", "worker-1", "-o", "name"},
		} {
			Expect(w.hub(ctx, 0, args...)).To(Equal(w.ichor(ctx, 0, args...)), strings.Join(args, " "))
		}
		for _, args := range [][]string{
			{"upgrade", "talos", "v1.12.0", "--cluster", "one", "--yes"}, {"upgrade", "talos", "v1.14.1", "--cluster", "two", "--yes"},
			{"node", "reboot", "worker-9", "--yes"}, {"operation", "get", "nothing"}, {"operation", "resume", "nothing"}, {"cluster", "forget", "nothing", "--yes"},
		} {
			there, here := w.hub(ctx, 1, args...), w.ichor(ctx, 1, args...)
			Expect(lastLine(there.Err)).To(Equal(lastLine(here.Err)), strings.Join(args, " "))
		}
		w.hub(ctx, 0, "logout")
		Expect(w.hub(ctx, 1, "cluster", "list").Err).To(ContainSubstring("sign in with: ichor login"))
	}, SpecTimeout(time.Minute))

	It("follows an upgrade while the API server, and then the hub, is killed and comes back", func(ctx SpecContext) {
		w := install(ctx, one)
		Expect(w.SignIn(ctx)).To(Succeed())
		leader := w.leaders()["one"]
		followed := make(chan e2e.Result, 1)
		go func() {
			defer GinkgoRecover()
			result, err := w.HubCLI(ctx, "upgrade", "talos", "v1.14.1", "--cluster", "one", "--yes", "--follow")
			Expect(err).NotTo(HaveOccurred())
			followed <- result
		}()
		first, err := w.Fleet.Journal().Wait(ctx, journal.Filter{Cluster: "one", Method: invariant.DownEvent})
		Expect(err).NotTo(HaveOccurred())
		Expect(w.KillAPIServer()).To(Succeed())
		By("the API server was killed while " + first.Node + " was away; the hub starts another")

		second, err := w.Fleet.Journal().Wait(ctx, journal.Filter{Cluster: "one", Method: invariant.DownEvent, After: first.Sequence})
		Expect(err).NotTo(HaveOccurred())
		Expect(w.KillHub()).To(Succeed())
		By("the hub was killed while " + second.Node + " was away")
		Expect(followed).NotTo(Receive(), "it goes on")
		Expect(w.StartHub(ctx)).To(Succeed())

		var result e2e.Result
		Eventually(followed).WithContext(ctx).Should(Receive(&result))
		Expect(result.Code).To(BeZero(), result.String())
		Expect(result.Err).To(And(ContainSubstring("does not answer"), ContainSubstring("answers again")))
		Expect(result.Out).To(MatchRegexp(`Completed within \S+\.\n$`))
		expectNothingMissed(ctx, w, result.Out)
		Expect(invariant.ReadRolling(w.Fleet.Journal(), "one").Problems(leader, 1)).To(BeEmpty())
		expectUpgraded(w, w.Fleet.Cluster("one"))
	}, SpecTimeout(3*time.Minute))

	It("detaches when it is told to stop waiting, and attaches again", func(ctx SpecContext) {
		w := install(ctx, one)
		Expect(w.SignIn(ctx)).To(Succeed())
		result := w.hub(ctx, 5, "node", "reboot", "worker-1", "--yes", "--follow", "--timeout", "200ms")
		Expect(result.Err).To(ContainSubstring("follow it again with: ichor operation watch "))
		name := strings.TrimSpace(w.hub(ctx, 0, "operation", "list", "-o", "name").Out)
		Expect(w.hub(ctx, 0, "operation", "watch", name).Out).To(ContainSubstring("Completed within"))
	}, SpecTimeout(time.Minute))
})

// expectNothingMissed compares the log with the record of the operation: every step of every machine, in order.
func expectNothingMissed(ctx SpecContext, w *world, log string) {
	GinkgoHelper()
	list := &v1alpha1.TalosOperationList{}
	Expect(w.client.List(ctx, list, client.InNamespace("default"))).To(Succeed())
	Expect(list.Items).To(HaveLen(1))
	for _, machine := range list.Items[0].Status.Machines {
		var want, got []string
		for _, step := range machine.Steps {
			want = append(want, string(step.Step))
		}
		for _, found := range regexp.MustCompile(`(?m)^\S+  `+machine.Name+`  (\w+)$`).FindAllStringSubmatch(log, -1) {
			got = append(got, found[1])
		}
		Expect(got).To(Equal(append(want, "Completed")), log)
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
