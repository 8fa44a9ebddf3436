// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// Style colours words. What a colour says, the word says, too.
type Style struct{ Colour bool }

// Paint wraps a text in a colour of the terminal.
func (s Style) Paint(colour, text string) string {
	if !s.Colour || colour == "" || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// Colours of a terminal.
const (
	Green  = "32"
	Yellow = "33"
	Red    = "31"
	Faint  = "2"
)

// Screen shows an operation as a tree that changes in place.
type Screen struct {
	// Out is the terminal, Err where remarks go; that is the terminal, too, as a rule.
	Out, Err io.Writer

	// Size is that of the terminal now.
	Size func() (width, height int)

	Style Style
	Now   func() time.Time

	mu    sync.Mutex
	op    *pb.Operation
	drawn int // Lines of the tree on the terminal.

	stop, stopped chan struct{}
}

// Start draws the tree every second until End: it tells how long steps have been going on.
func (s *Screen) Start() {
	s.stop, s.stopped = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(s.stopped)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-s.stop:
				return
			case <-ticker.C:
				s.redraw()
			}
		}
	}()
}

// Show draws a state.
func (s *Screen) Show(op *pb.Operation) {
	s.mu.Lock()
	s.op = op
	s.mu.Unlock()
	s.redraw()
}

// Tell prints a remark above the tree.
func (s *Screen) Tell(text string) {
	s.mu.Lock()
	s.erase()
	fmt.Fprintln(s.Err, Plain(text))
	s.mu.Unlock()
	s.redraw()
}

// End leaves the last state on the terminal.
func (s *Screen) End() {
	close(s.stop)
	<-s.stopped
	s.redraw()
}

func (s *Screen) redraw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.op == nil {
		return
	}
	width, height := s.Size()
	lines := frame{now: s.Now(), width: width, height: height, style: s.Style}.draw(s.op)
	s.erase()
	fmt.Fprint(s.Out, strings.Join(lines, "\n")+"\n")
	s.drawn = len(lines)
}

// erase takes the tree off the terminal.
func (s *Screen) erase() {
	if s.drawn > 0 {
		fmt.Fprintf(s.Out, "\x1b[%dA\r\x1b[J", s.drawn)
	}
	s.drawn = 0
}

// frame is one picture of an operation.
type frame struct {
	now           time.Time
	width, height int
	style         Style
}

// draw makes the lines of a picture. None is wider than the terminal, and there are no more than fit.
func (f frame) draw(op *pb.Operation) []string {
	lines := []string{f.fit("", head(op), "")}
	summary := f.wrap(Summary(op))
	leaves := f.collapse(f.leaves(op), f.height-len(lines)-len(summary)-1) // The cursor has a line of its own.
	for i, l := range leaves {
		branch := "├─ "
		if i == len(leaves)-1 {
			branch = "└─ "
		}
		lines = append(lines, f.fit(branch, l.text, l.colour))
	}
	for _, line := range summary {
		lines = append(lines, f.style.Paint(summaryColour(op), line))
	}
	return lines
}

// leaves are all lines below the operation.
func (f frame) leaves(op *pb.Operation) []leaf {
	var leaves []leaf
	for _, unit := range slices.Concat(op.GetMachines(), op.GetUnits()) {
		leaves = append(leaves, f.leaf(unit))
	}
	if more := int(op.GetMachinesTotal()) - len(op.GetMachines()); more > 0 && !Completed(op) {
		leaves = append(leaves, leaf{text: fmt.Sprintf("%d more to come", more), colour: Faint})
	}
	for _, held := range op.GetHeld() {
		leaves = append(leaves, leaf{text: held + "  held, skipped", colour: Faint})
	}
	return leaves
}

// leaf is one line below the operation.
type leaf struct {
	text, colour string
	over         bool
}

func head(op *pb.Operation) string {
	text := fmt.Sprintf("%s  %s of %s", op.GetRef().GetName(), KindName(op.GetKind()), op.GetCluster().GetName())
	if op.GetStage() != "" {
		text += "  " + op.GetStage()
	}
	if total := op.GetMachinesTotal(); total > 0 {
		text += fmt.Sprintf("  %d/%d", op.GetMachinesCompleted(), total)
	}
	return text
}

func (f frame) leaf(unit *pb.OperationUnit) leaf {
	l := leaf{text: unit.GetName()}
	switch {
	case unit.GetPhase() == pb.UnitPhase_UNIT_PHASE_COMPLETED:
		l.text, l.colour, l.over = l.text+"  Completed", Green, true
		return l
	case unit.GetFailed():
		l.text, l.colour = l.text+"  failed: "+unit.GetStep(), Red
	case unit.GetStep() != "":
		l.text += "  " + unit.GetStep()
		if start := unit.GetStepStartTime(); start != nil {
			l.text += "  " + duration.HumanDuration(f.now.Sub(start.AsTime()))
		}
	case unit.GetStage() != "":
		l.text += "  " + unit.GetStage()
	}
	if unit.GetMessage() != "" {
		l.text += "  " + unit.GetMessage()
	}
	return l
}

// collapse makes one line of those that are over where there is no room for all, and leaves out what does not fit then.
func (f frame) collapse(leaves []leaf, room int) []leaf {
	room = max(room, 1)
	if f.height <= 0 || len(leaves) <= room {
		return leaves
	}
	over := 0
	rest := slices.DeleteFunc(slices.Clone(leaves), func(l leaf) bool {
		if l.over {
			over++
		}
		return l.over
	})
	if over > 0 {
		rest = slices.Insert(rest, 0, leaf{text: fmt.Sprintf("%d completed", over), colour: Green})
	}
	if len(rest) > room {
		rest = append(rest[:room-1], leaf{text: fmt.Sprintf("%d more lines", len(rest)-room+1), colour: Faint})
	}
	return rest
}

// fit cuts a line at the width of the terminal, so that it does not become two.
func (f frame) fit(branch, text, colour string) string {
	runes := []rune(Plain(text))
	if room := f.width - len([]rune(branch)); f.width > 0 && len(runes) > room {
		runes = append(runes[:max(room-1, 0)], '…')
	}
	return branch + f.style.Paint(colour, string(runes))
}

// wrap breaks a text into lines that fit.
func (f frame) wrap(text string) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case f.width > 0 && len([]rune(line))+1+len([]rune(word)) > f.width:
			lines = append(lines, f.fit("", line, ""))
			line = word
		default:
			line += " " + word
		}
	}
	if line != "" {
		lines = append(lines, f.fit("", line, ""))
	}
	return lines
}

func summaryColour(op *pb.Operation) string {
	switch {
	case Completed(op):
		return Green
	case NeedsPerson(op):
		return Red
	}
	return Yellow
}

// KindName is how people write a kind, such as ca-rotation.
func KindName(kind pb.OperationKind) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(kind.String(), "OPERATION_KIND_")), "_", "-")
}
