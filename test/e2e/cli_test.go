// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim/journal"
)

var _ = Describe("The CLI", Ordered, func() {
	var w *world
	BeforeAll(func(ctx SpecContext) { w = install(ctx, one) }, NodeTimeout(time.Minute))

	It("lists clusters and machines in every format", func(ctx SpecContext) {
		Expect(w.ichor(ctx, 0, "cluster", "list", "-o", "name").Out).To(Equal("taloscluster.ichor.maesh.dev/one\n"))
		Expect(w.ichor(ctx, 0, "cluster", "list", "-o", "yaml").Out).To(And(HavePrefix("clusters:\n"), ContainSubstring("lowest: v1.13.6")))
		Expect(w.ichor(ctx, 0, "cluster", "get", "one").Out).To(And(ContainSubstring("EtcdHealthy"), ContainSubstring("one-worker-3")))
		Expect(w.ichor(ctx, 0, "machine", "list", "--cluster", "one").Out).To(MatchRegexp(`one-cp-1 +one +cp-1 +ControlPlane +True +v1.13.6`))
		Expect(w.ichor(ctx, 2, "cluster", "list", "-o", "csv").Err).To(And(ContainSubstring(`"csv"`), ContainSubstring("table, wide, json, yaml, name, jsonl")))
	})

	It("shows a plan and changes nothing", func(ctx SpecContext) {
		before := w.Fleet.Journal().Last()
		result := w.ichor(ctx, 0, "upgrade", "talos", "1.14.1", "--cluster", "one", "--dry-run")
		Expect(result.Out).To(And(
			ContainSubstring("upgrade Talos to v1.14.1"), ContainSubstring("one-cp-1 (ControlPlane) v1.13.6 -> v1.14.1"),
			ContainSubstring("Warning: the only control plane reboots"),
		))
		Expect(result.Err).To(ContainSubstring("nothing was changed"))
		Expect(w.ichor(ctx, 0, "operation", "plan", "talos", "1.14.1", "--cluster", "one").Out).To(ContainSubstring("one-cp-1 (ControlPlane) v1.13.6 -> v1.14.1"))
		Expect(w.ichor(ctx, 0, "operation", "list").Out).To(BeEmpty())
		Expect(w.ichor(ctx, 0, "cluster", "get", "one", "-o", "json").Out).NotTo(ContainSubstring("v1.14.1"))
		Expect(w.Fleet.Journal().Entries(journal.Filter{After: before, Method: invariant.InstallMethod})).To(BeEmpty())
	})

	DescribeTable("refuses what cannot be done, says why, and writes nothing", func(ctx SpecContext, code int, says []string, args ...string) {
		result := w.ichor(ctx, code, args...)
		for _, text := range says {
			Expect(result.Err).To(ContainSubstring(text))
		}
		Expect(w.ichor(ctx, 0, "operation", "list").Out).To(BeEmpty())
	},
		Entry("a downgrade", 1, []string{"TalosVersionPath", "older than the running v1.13.6"}, "upgrade", "talos", "v1.12.0", "--cluster", "one", "--yes"),
		Entry("a pre-release", 1, []string{"not a final version"}, "upgrade", "talos", "v1.14.0-beta.1", "--cluster", "one", "--yes"),
		Entry("half a version", 1, []string{"did you mean 1.14.0?"}, "upgrade", "talos", "1.14", "--cluster", "one", "--yes"),
		Entry("a cluster that is not there", 1, []string{`no cluster "two"`, "ichor cluster list"}, "upgrade", "talos", "v1.14.1", "--cluster", "two", "--yes"),
		Entry("no cluster", 2, []string{"--cluster is needed"}, "upgrade", "talos", "v1.14.1", "--yes"),
		Entry("no terminal to ask on", 2, []string{"add --yes"}, "upgrade", "talos", "v1.14.1", "--cluster", "one"),
		Entry("a budget that is none", 2, []string{`"many"`, "25%"}, "upgrade", "talos", "v1.14.1", "--cluster", "one", "--max-unavailable", "many"),
		Entry("a budget out of range", 1, []string{`order.max_unavailable "0": a number from 1 to 1000`}, "upgrade", "talos", "v1.14.1", "--cluster", "one", "--max-unavailable", "0", "--yes"),
		Entry("a machine that is not there", 1, []string{`no machine "worker-9"`}, "node", "reboot", "worker-9", "--cluster", "one", "--yes"),
		Entry("a mode that is none", 2, []string{"default, powercycle, force"}, "node", "reboot", "worker-1", "--mode", "hard"),
		Entry("an operation that is not there", 1, []string{`no operation "nothing"`}, "operation", "get", "nothing"),
	)

	It("refuses files that cannot work, says which and why, and writes nothing (A6, A7, A10, A14)", func(ctx SpecContext) {
		refuseWrongFiles(ctx, w)
	}, SpecTimeout(time.Minute))

	It("approves a machine that it found later", func(ctx SpecContext) { approveLateMachine(ctx, w) }, SpecTimeout(time.Minute))

	It("reboots a machine by the name of its node, paused and resumed on the way", func(ctx SpecContext) {
		before := w.Fleet.Cluster("one").Node("worker-2").State().BootID
		w.ichor(ctx, 0, "node", "reboot", "worker-2", "--cluster", "one", "--yes")
		op, err := w.operation(ctx, "one")
		Expect(err).NotTo(HaveOccurred())
		Expect(w.ichor(ctx, 1, "node", "reboot", "worker-1", "--cluster", "one", "--yes").Err).To(ContainSubstring("operation " + op.Name + " of cluster one is not finished"))
		w.ichor(ctx, 0, "operation", "pause", op.Name)
		Eventually(func() string { return w.ichor(ctx, 0, "operation", "get", op.Name).Out }).WithContext(ctx).Should(Or(
			ContainSubstring("OperatorPaused"), ContainSubstring("Completed"))) // It may have been over before.
		w.ichor(ctx, 0, "operation", "resume", op.Name)
		w.ichor(ctx, 0, "operation", "watch", op.Name)
		Expect(w.Fleet.Cluster("one").Node("worker-2").State().BootID).NotTo(Equal(before))
		Expect(invariant.ReadRolling(w.Fleet.Journal(), "one").Reboots).To(Equal(map[string]int{"worker-2": 1}))
		w.ichor(ctx, 0, "operation", "delete", op.Name)
		Eventually(func() string { return w.ichor(ctx, 0, "operation", "list").Out }).WithContext(ctx).Should(BeEmpty())
	}, SpecTimeout(time.Minute))

	It("holds a machine back from an upgrade", func(ctx SpecContext) {
		w.ichor(ctx, 0, "machine", "hold", "worker-3", "--note", "disk swap")
		Expect(w.ichor(ctx, 0, "machine", "list").Out).To(ContainSubstring("held: disk swap"))
		result := w.ichor(ctx, 0, "upgrade", "talos", "v1.14.1", "--cluster", "one", "--follow", "--yes")
		Expect(result.Err).To(ContainSubstring("held, skipped: one-worker-3"))
		Expect(result.Out).To(ContainSubstring("held: one-worker-3"))
		Expect(w.Fleet.Cluster("one").Node("worker-3").State().Running.Version).To(Equal("v1.13.6"))

		w.ichor(ctx, 0, "machine", "unhold", "one-worker-3")
		w.ichor(ctx, 0, "upgrade", "talos", "v1.14.1", "--cluster", "one", "--follow", "--yes")
		Expect(w.Fleet.Cluster("one").Node("worker-3").State().Running.Version).To(Equal("v1.14.1"))
		Eventually(func() string {
			return w.ichor(ctx, 0, "upgrade", "talos", "v1.14.1", "--cluster", "one", "--yes").Err
		}).WithContext(ctx).Should(ContainSubstring("nothing to do"))
	}, SpecTimeout(2*time.Minute))

	It("prints what scripts can read", func(ctx SpecContext) {
		var list struct {
			Operations []struct{ Kind, Phase string }
		}
		Expect(w.CLIJSON(ctx, &list, "operation", "list")).To(Succeed())
		Expect(list.Operations).To(HaveLen(2))
		Expect(list.Operations[0]).To(And(HaveField("Kind", "OPERATION_KIND_TALOS"), HaveField("Phase", "OPERATION_PHASE_COMPLETED")))
		name := strings.Fields(w.ichor(ctx, 0, "operation", "list", "-o", "name").Out)[0]
		Expect(w.ichor(ctx, 0, "operation", "get", name, "-o", "name").Out).To(Equal(name+"\n"), "what is printed is taken back")
	})
})
