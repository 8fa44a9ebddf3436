// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// Log prints what happens to an operation, a line each. What happened while nobody looked is printed, too: the steps of a machine are in
// its state, with their times.
type Log struct {
	// Out gets the log, Err what is not about the operation.
	Out, Err io.Writer

	// Now tells the time of what has none.
	Now func() time.Time

	steps map[string][]*pb.OperationStep // That were printed, by unit.
	said  map[string]string              // The last thing said, by unit.
	lines []logLine                      // That are about to be printed.
}

// logLine is something that happened at some time.
type logLine struct {
	at   time.Time
	text string
}

// NewLog is a log that has printed nothing.
func NewLog(out, errOut io.Writer, now func() time.Time) *Log {
	return &Log{Out: out, Err: errOut, Now: now, steps: map[string][]*pb.OperationStep{}, said: map[string]string{}}
}

// Show prints what is new in a state, in the order in which it happened.
func (l *Log) Show(op *pb.Operation) {
	for _, unit := range slices.Concat(op.GetMachines(), op.GetUnits()) {
		l.showUnit(unit)
	}
	slices.SortStableFunc(l.lines, func(a, b logLine) int { return a.at.Compare(b.at) })
	at := l.Now()
	if op.GetCompletionTime() != nil {
		at = op.GetCompletionTime().AsTime()
	}
	l.say("", at, Summary(op))
	for _, line := range l.lines {
		fmt.Fprintf(l.Out, "%s  %s\n", line.at.In(l.Now().Location()).Format(time.TimeOnly), line.text)
	}
	l.lines = nil
}

func (l *Log) showUnit(unit *pb.OperationUnit) {
	name := unit.GetName()
	for _, step := range after(l.steps[name], unit.GetSteps()) {
		l.add(name, step.GetStartTime().AsTime(), step.GetName())
	}
	l.steps[name] = unit.GetSteps()
	switch {
	case unit.GetMessage() != "":
		l.say(name, l.Now(), unit.GetStep()+": "+unit.GetMessage())
	case unit.GetPhase() == pb.UnitPhase_UNIT_PHASE_COMPLETED:
		l.say(name, l.end(unit), "Completed")
	case unit.GetStep() != "" && len(unit.GetSteps()) == 0:
		l.say(name, unit.GetStepStartTime().AsTime(), unit.GetStep())
	}
}

// end is when a unit was over: with its last step.
func (l *Log) end(unit *pb.OperationUnit) time.Time {
	steps := unit.GetSteps()
	if len(steps) == 0 || steps[len(steps)-1].GetEndTime() == nil {
		return l.Now()
	}
	return steps[len(steps)-1].GetEndTime().AsTime()
}

// after are the steps that were not there before. Only the last ones are kept in a state, so the first of those before may be gone.
func after(before, now []*pb.OperationStep) []*pb.OperationStep {
	for dropped := range before {
		if kept := before[dropped:]; begins(now, kept) {
			return now[len(kept):]
		}
	}
	return now
}

// begins says whether steps begin with others; the last of those may have ended since.
func begins(steps, others []*pb.OperationStep) bool {
	if len(steps) < len(others) {
		return false
	}
	for i, other := range others {
		if steps[i].GetName() != other.GetName() || !proto.Equal(steps[i].GetStartTime(), other.GetStartTime()) {
			return false
		}
	}
	return true
}

// say adds something about a unit, or about the operation, unless that was the last thing said about it.
func (l *Log) say(unit string, at time.Time, what string) {
	if l.said[unit] != what {
		l.add(unit, at, what)
	}
}

func (l *Log) add(unit string, at time.Time, what string) {
	l.said[unit] = what
	switch {
	case what == "":
		return
	case unit != "":
		what = unit + "  " + what
	}
	l.lines = append(l.lines, logLine{at, Plain(what)})
}

// Plain takes out what would move a terminal's cursor: texts come from targets, too.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}

// Tell prints a remark.
func (l *Log) Tell(text string) { fmt.Fprintln(l.Err, Plain(text)) }

// End has nothing to add.
func (l *Log) End() {}
