// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"

	"connectrpc.com/connect"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/fleet/render"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// HoldMachine implements the ClusterService.
func (s *Server) HoldMachine(ctx context.Context, request *connect.Request[pb.HoldMachineRequest]) (*connect.Response[pb.HoldMachineResponse], error) {
	service, machine, err := s.machine(ctx, request.Msg.GetRef())
	if err != nil {
		return nil, problem(err)
	}
	changed, err := service.SetHold(ctx, machine, request.Msg.GetHeld(), request.Msg.GetNote())
	if err != nil {
		return nil, problem(err)
	}
	return connect.NewResponse(&pb.HoldMachineResponse{Machine: service.machine(ctx, machine), Changed: changed}), nil
}

// ApproveMachine implements the ClusterService.
func (s *Server) ApproveMachine(ctx context.Context, request *connect.Request[pb.ApproveMachineRequest]) (*connect.Response[pb.ApproveMachineResponse], error) {
	service, machine, err := s.machine(ctx, request.Msg.GetRef())
	if err != nil {
		return nil, problem(err)
	}
	changed, err := service.Approve(ctx, machine)
	if err != nil {
		return nil, problem(err)
	}
	return connect.NewResponse(&pb.ApproveMachineResponse{Machine: service.machine(ctx, machine), Changed: changed}), nil
}

// machine begins a call about one machine, by the name of its TalosMachine or of its Node.
func (s *Server) machine(ctx context.Context, ref *pb.Reference) (*Service, *v1alpha1.TalosMachine, error) {
	key, err := s.key("ref", ref)
	if err != nil {
		return nil, nil, err
	}
	service, err := s.writer(ctx)
	if err != nil {
		return nil, nil, err
	}
	machine, err := service.Machine(ctx, key.Namespace, "", key.Name)
	return service, machine, err
}

// machine is a machine as it is after a write, with what is done to it as far as that can be read.
func (s *Service) machine(ctx context.Context, machine *v1alpha1.TalosMachine) *pb.Machine {
	works := render.Works(s.underWay(ctx, machine.Namespace, machine.Spec.ClusterName))
	return render.Machine(machine, works[machine.Name])
}

// SetHold makes rolling operations skip a machine, with a note for people, or takes that back. It says whether that is new.
func (s *Service) SetHold(ctx context.Context, machine *v1alpha1.TalosMachine, held bool, note string) (changed bool, err error) {
	if err := s.mayWrite(ctx, "patch", machinesResource, machine); err != nil {
		return false, err
	}
	switch {
	case len(note) > mostReason:
		return false, &InvalidError{Field: "note", Value: note, Allowed: fmt.Sprintf("at most %d bytes", mostReason)}
	case note != "" && !held:
		return false, &InvalidError{Field: "note", Value: note, Allowed: "goes with held only"}
	case machine.Held() == held && machine.Annotations[v1alpha1.UpgradeHoldAnnotation] == note:
		return false, nil
	}
	before := machine.DeepCopy()
	if machine.Annotations == nil {
		machine.Annotations = map[string]string{}
	}
	machine.Annotations[v1alpha1.UpgradeHoldAnnotation] = note
	if !held {
		delete(machine.Annotations, v1alpha1.UpgradeHoldAnnotation)
	}
	if err := s.Client.Patch(ctx, machine, client.MergeFrom(before)); err != nil {
		return false, fmt.Errorf("changing the hold of machine %s: %w", machine.Name, err)
	}
	return true, nil
}

// Approve lets the hub work on a machine that was found after the initial discovery. It says whether that is new.
func (s *Service) Approve(ctx context.Context, machine *v1alpha1.TalosMachine) (changed bool, err error) {
	if err := s.mayWrite(ctx, "patch", machinesResource, machine); err != nil {
		return false, err
	}
	if machine.Spec.Approval == v1alpha1.Approved {
		return false, nil
	}
	before := machine.DeepCopy()
	machine.Spec.Approval = v1alpha1.Approved
	if err := s.Client.Patch(ctx, machine, client.MergeFrom(before)); err != nil {
		return false, fmt.Errorf("approving machine %s: %w", machine.Name, err)
	}
	return true, nil
}
