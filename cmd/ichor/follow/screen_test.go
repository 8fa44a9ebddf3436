// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

func drawn(op *pb.Operation, width, height int) string {
	return strings.Join(frame{now: start.Add(75 * time.Second), width: width, height: height}.draw(op), "\n")
}

func running() *pb.Operation {
	over := unit("c1-cp-1", "Rebooting")
	over.Phase = pb.UnitPhase_UNIT_PHASE_COMPLETED
	failed := unit("c1-w-1", "Installing")
	failed.Failed, failed.Message = true, "exit code 6"
	op := state(inProgress, over, unit("c1-cp-2", "Pulling", "Draining"), failed)
	op.Stage, op.MachinesTotal, op.MachinesCompleted, op.Held = "Upgrade", 5, 1, []string{"c1-w-3"}
	return op
}

func TestFrame(t *testing.T) {
	g := NewWithT(t)
	g.Expect(drawn(running(), 80, 24)).To(Equal(`op-1  talos of c1  Upgrade  1/5
├─ c1-cp-1  Completed
├─ c1-cp-2  Draining  74s
├─ c1-w-1  failed: Installing  exit code 6
├─ 2 more to come
└─ c1-w-3  held, skipped`))
	g.Expect(drawn(answered(paused, "StepFailed"), 30, 24)).To(Equal(`op-1  talos of c1
Paused: StepFailed: why. Who:
who. See: ichor x`))
}

// No line is wider than the terminal, and no picture higher: else the next one would not cover it.
func TestFrameFits(t *testing.T) {
	g := NewWithT(t)
	op := running()
	for i := range 100 {
		u := unit(fmt.Sprintf("c1-a-%d", i), "Pulling")
		if i < 60 {
			u.Phase = pb.UnitPhase_UNIT_PHASE_COMPLETED
		}
		op.Machines = append(op.Machines, u)
	}
	op.Answer = &pb.Answer{Reason: "EtcdHealthy", Why: strings.Repeat("long ", 30)}
	for _, size := range [][2]int{{80, 24}, {20, 24}, {40, 12}} {
		lines := strings.Split(drawn(op, size[0], size[1]), "\n")
		g.Expect(len(lines)).To(BeNumerically("<", size[1]))
		for _, line := range lines {
			g.Expect(len([]rune(line))).To(BeNumerically("<=", size[0]), line)
		}
	}
	g.Expect(drawn(op, 80, 24)).To(And(ContainSubstring("61 completed"), ContainSubstring("more lines"), ContainSubstring("c1-cp-2  Draining")))
}

func TestStyle(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Style{}.Paint(Red, "x")).To(Equal("x"))
	g.Expect(Style{Colour: true}.Paint(Red, "x")).To(Equal("\x1b[31mx\x1b[0m"))
	g.Expect(Style{Colour: true}.Paint("", "x")).To(Equal("x"))
}

// A picture takes the place of the one before, also when only time has gone by; a remark stays above it.
func TestScreen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		var out bytes.Buffer
		screen := &Screen{Out: &out, Err: &out, Size: func() (int, int) { return 80, 24 }, Now: func() time.Time { return start }}
		screen.Start()
		screen.Show(state(inProgress, unit("c1-cp-1", "Pulling")))
		g.Expect(out.String()).To(Equal("op-1  talos of c1\n└─ c1-cp-1  Pulling  0s\n"))
		out.Reset()
		screen.Tell("a remark")
		g.Expect(out.String()).To(Equal("\x1b[2A\r\x1b[Ja remark\nop-1  talos of c1\n└─ c1-cp-1  Pulling  0s\n"))
		out.Reset()
		time.Sleep(1500 * time.Millisecond) //nolint:forbidigo // Of the bubble: it takes no time.
		g.Expect(out.String()).To(HavePrefix("\x1b[2A\r\x1b[J"))
		screen.End()
		out.Reset()
		time.Sleep(5 * time.Second) //nolint:forbidigo // Likewise.
		g.Expect(out.String()).To(BeEmpty())
	})
}
