// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
)

// Operation follows one operation until it is over or needs a person.
type Operation struct {
	Client ichorv1alpha1connect.OperationServiceClient
	Ref    *pb.Reference

	// Show gets every state that is not the one before.
	Show func(*pb.Operation)

	// Lost and Back are those of Stream.
	Lost func(error)
	Back func()
}

// Run returns the last state; nil if the operation is gone.
func (o *Operation) Run(ctx context.Context) (*pb.Operation, error) {
	w := &watched{Operation: o}
	stream := &Stream[pb.WatchOperationsResponse]{
		Open:  w.open,
		Token: (*pb.WatchOperationsResponse).GetResumeToken, Handle: w.handle,
		Lost: o.Lost, Back: o.Back,
	}
	if err := stream.Run(ctx); err != nil {
		return w.last, err
	}
	if w.gone {
		return nil, nil
	}
	return w.last, nil
}

// watched is what a watch has told of an operation.
type watched struct {
	*Operation

	last    *pb.Operation
	present bool // Sent since the watch began, or began anew.
	missing bool // Not sent by the end of what there was.
	gone    bool
}

func (w *watched) open(ctx context.Context, token string) (Receiver[pb.WatchOperationsResponse], error) {
	if token == "" {
		w.present = false // Everything is sent again.
	}
	return w.Client.WatchOperations(ctx, connect.NewRequest(&pb.WatchOperationsRequest{
		Filter: &pb.OperationFilter{Names: []*pb.Reference{w.Ref}}, ResumeToken: token,
	}))
}

func (w *watched) handle(message *pb.WatchOperationsResponse) (done bool, err error) {
	switch event := message.GetEvent().(type) {
	case *pb.WatchOperationsResponse_Changed:
		return w.changed(event.Changed), nil
	case *pb.WatchOperationsResponse_Removed:
		w.gone = sameName(event.Removed, w.Ref)
	case *pb.WatchOperationsResponse_Reset_:
		w.present = false
	case *pb.WatchOperationsResponse_Synced:
		w.missing = !w.present
		w.gone = w.missing && w.last != nil
	case *pb.WatchOperationsResponse_Heartbeat:
		// One that was just created may not have reached the hub's memory when the watch began. By the first heartbeat it has.
		w.gone = w.missing
	}
	return w.gone, nil
}

// changed takes a state, and says whether it is the last to wait for.
func (w *watched) changed(op *pb.Operation) bool {
	if !sameName(op.GetRef(), w.Ref) {
		return false
	}
	w.present, w.missing = true, false
	if !proto.Equal(op, w.last) {
		w.last = op
		w.Show(op)
	}
	return Completed(op) || NeedsPerson(op)
}

func sameName(a, b *pb.Reference) bool {
	return a.GetNamespace() == b.GetNamespace() && a.GetName() == b.GetName()
}

// Completed says whether an operation is over.
func Completed(op *pb.Operation) bool {
	return op.GetPhase() == pb.OperationPhase_OPERATION_PHASE_COMPLETED
}

// standstills are the reasons of a pause that only a person ends.
var standstills = map[string]bool{
	v1alpha1.StatusLostReason: true, v1alpha1.StepFailedReason: true, v1alpha1.NoExecutorReason: true, v1alpha1.RefusedReason: true,
}

// NeedsPerson says whether an operation stands still until somebody does something, and nobody has yet.
func NeedsPerson(op *pb.Operation) bool {
	return !Completed(op) && standstills[op.GetAnswer().GetReason()] && !op.GetRetryRequested()
}
