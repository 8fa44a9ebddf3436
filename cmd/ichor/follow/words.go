// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"fmt"
	"strings"
	"time"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// Summary says in a sentence what an operation does, or waits for; nothing while its machines tell all that there is to tell.
func Summary(op *pb.Operation) string {
	answer := op.GetAnswer()
	switch {
	case Completed(op):
		return "Completed" + took(op) + heldBack(op) + "."
	case answer.GetWhy() != "":
		return standing(op)
	case op.GetDeleting():
		return "Being deleted: " + answer.GetDoing() + "."
	}
	return ""
}

// standing is about an operation that does not move.
func standing(op *pb.Operation) string {
	answer := op.GetAnswer()
	text := fmt.Sprintf("Waiting: %s: %s.", answer.GetReason(), answer.GetWhy())
	if op.GetPhase() == pb.OperationPhase_OPERATION_PHASE_PAUSED {
		text = fmt.Sprintf("Paused: %s: %s.", answer.GetReason(), answer.GetWhy())
	}
	if settling := answer.GetDoing(); settling != "" && settling != "nothing" && settling != "waiting" {
		text += " Now: " + settling + "."
	}
	if answer.GetWho() != "" {
		text += " Who: " + answer.GetWho() + "."
	}
	if answer.GetCommand() != "" {
		text += " See: " + answer.GetCommand()
	}
	return text
}

// took is how long an operation took; nothing if that is not known.
func took(op *pb.Operation) string {
	if op.GetStartTime() == nil || op.GetCompletionTime() == nil {
		return ""
	}
	return fmt.Sprintf(" within %s", op.GetCompletionTime().AsTime().Sub(op.GetStartTime().AsTime()).Round(time.Second))
}

func heldBack(op *pb.Operation) string {
	if len(op.GetHeld()) == 0 {
		return ""
	}
	return "; held: " + strings.Join(op.GetHeld(), ", ")
}
