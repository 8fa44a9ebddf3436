// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/hub/fleet/render"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// PlanOperation implements the OperationService.
func (s *Server) PlanOperation(ctx context.Context, request *connect.Request[pb.PlanOperationRequest]) (*connect.Response[pb.PlanOperationResponse], error) {
	made, err := s.planOperation(ctx, request.Msg)
	if err != nil {
		return nil, problem(err)
	}
	return connect.NewResponse(made), nil
}

func (s *Server) planOperation(ctx context.Context, request *pb.PlanOperationRequest) (*pb.PlanOperationResponse, error) {
	order, err := s.orderOf(request.GetOrder())
	if err != nil {
		return nil, err
	}
	service, live, err := s.reader(ctx)
	if err != nil {
		return nil, err
	}
	start, err := service.Plan(ctx, order)
	if err != nil {
		return nil, err
	}
	if start.WritesSpec() { // Who keeps it, and whose fields are what, no cache tells.
		if err := start.lookAgain(ctx, live); err != nil {
			return nil, err
		}
	}
	message := start.message()
	if took := service.estimate(ctx, start); took > 0 {
		message.EstimatedDuration = durationpb.New(took)
	}
	s.preview(ctx, service, start, message)
	return &pb.PlanOperationResponse{Plan: message}, nil
}

// lookAgain reads the object whose spec is written from the management API itself and judges anew whether it may be.
func (s *Start) lookAgain(ctx context.Context, live client.Client) error {
	object, ok := s.declares().DeepCopyObject().(client.Object)
	if !ok {
		return nil // It is one.
	}
	if err := live.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
		return err
	}
	s.Refusals = slices.DeleteFunc(s.Refusals, func(r plan.Refusal) bool {
		return r.Gate == v1alpha1.SpecTrackedGate || r.Gate == v1alpha1.SpecOwnedGate
	})
	s.Plan.Warnings = slices.DeleteFunc(s.Plan.Warnings, func(w plan.Warning) bool { return w.Code == plan.VersionContractWarning })
	s.judge(object)
	return nil
}

// estimate is how long a start takes, by the operations of its cluster; and where those say nothing, by all that the user may read.
func (s *Service) estimate(ctx context.Context, start *Start) time.Duration {
	own := slices.DeleteFunc(slices.Clone(start.operations), func(op v1alpha1.TalosOperation) bool {
		return op.Spec.ClusterName != start.Spec.ClusterName
	})
	if took := estimate(start.Spec, start.works(), own); took > 0 {
		return took
	}
	list := &v1alpha1.TalosOperationList{}
	if err := s.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil { // There may be many, and they are only looked at.
		list.Items = start.operations // Who may read one namespace only has that.
	}
	return estimate(start.Spec, start.works(), list.Items)
}

// message is the plan for whoever reads it.
func (s *Start) message() *pb.Plan {
	cluster := s.Order.Cluster
	return &pb.Plan{
		Cluster:      render.Reference(cluster.Namespace, cluster.Name),
		Kind:         render.Kind(s.Spec.Kind),
		Effect:       effects[s.Plan.Effect],
		Stages:       s.stageMessages(),
		Held:         s.Plan.Held,
		Current:      render.Target(s.Declared),
		Target:       render.Target(s.Plan.Target),
		Refusals:     refusalMessages(s.Refusals),
		Warnings:     warningMessages(s.Plan.Warnings),
		Overridden:   refusalMessages(s.Plan.Overridden),
		ObservedTime: timestamppb.New(s.Observed),
		AtTarget:     s.AtTarget(),
		Confirmation: confirmation(s.Plan.Effect),
		WritesSpec:   s.WritesSpec(),
		Command:      s.Command(),
		LiveGates:    s.Plan.LiveGates(s.Facts.Cluster, s.concerned()),
		Losses:       s.Plan.Losses,
	}
}

// effects are the effects as messages have them.
var effects = map[plan.Effect]pb.Effect{
	plan.EffectNone:              pb.Effect_EFFECT_NONE,
	plan.EffectRestartComponents: pb.Effect_EFFECT_RESTART_COMPONENTS,
	plan.EffectReboot:            pb.Effect_EFFECT_REBOOT,
	plan.EffectStop:              pb.Effect_EFFECT_STOP,
	plan.EffectReset:             pb.Effect_EFFECT_RESET,
	plan.EffectJoin:              pb.Effect_EFFECT_JOIN,
	plan.EffectRemove:            pb.Effect_EFFECT_REMOVE,
	plan.EffectKeyRotation:       pb.Effect_EFFECT_KEY_ROTATION,
	plan.EffectCARotation:        pb.Effect_EFFECT_CA_ROTATION,
	plan.EffectRestore:           pb.Effect_EFFECT_RESTORE,
}

// concerned are the machines that gates are judged for: those of the cluster, and one that joins it.
func (s *Start) concerned() []*v1alpha1.TalosMachine {
	machines := s.Facts.Approved()
	if node := s.Spec.Node; node != nil && node.Action == v1alpha1.JoinAction {
		if machine := s.Facts.Machine(node.Machine); machine != nil {
			machines = append(machines, machine)
		}
	}
	return machines
}

// confirmation is what a person has to do before a start: what is worse than a reboot asks for a name.
func confirmation(effect plan.Effect) pb.Confirmation {
	switch effect {
	case plan.EffectNone, plan.EffectRestartComponents, plan.EffectReboot, plan.EffectJoin: // A person has vouched for the machine already.
		return pb.Confirmation_CONFIRMATION_YES
	default:
		return pb.Confirmation_CONFIRMATION_NAME
	}
}

func (s *Start) stageMessages() []*pb.PlanStage {
	var stages []*pb.PlanStage
	for i, groups := range s.Groups() {
		stage := &pb.PlanStage{Name: s.Plan.Stages[i].Name, Disruptive: s.Plan.Stages[i].Disruptive && !s.Plan.Stages[i].Joins}
		for _, names := range groups {
			group := &pb.PlanGroup{}
			for _, name := range names {
				group.Machines = append(group.Machines, s.machineMessage(name))
			}
			stage.Groups = append(stage.Groups, group)
		}
		stages = append(stages, stage)
	}
	return stages
}

// machineMessage is a machine of the plan. One that nobody knows has a name only.
func (s *Start) machineMessage(name string) *pb.PlanMachine {
	machine := s.Facts.Machine(name)
	if machine == nil {
		return &pb.PlanMachine{Name: name}
	}
	current := v1alpha1.OperationTarget{
		TalosVersion: machine.Status.TalosVersion, SchematicID: machine.Status.SchematicID, KubernetesVersion: machine.Status.KubeletVersion,
	}
	change := s.Plan.Changes[name]
	return &pb.PlanMachine{
		Effect: effects[change.Effect], Diff: change.Diff,
		Name: name, Node: machine.Status.NodeName, Role: render.Role(machine.Spec.Role),
		Current: render.Target(current), Target: render.Target(over(current, s.Plan.Target)),
	}
}

func refusalMessages(refusals []plan.Refusal) []*pb.Refusal {
	var messages []*pb.Refusal
	for _, r := range refusals {
		messages = append(messages, &pb.Refusal{Gate: r.Gate, Message: r.Message, Help: r.Help, Overridable: r.Overridable})
	}
	return messages
}

func warningMessages(warnings []plan.Warning) []*pb.Warning {
	var messages []*pb.Warning
	for _, w := range warnings {
		messages = append(messages, &pb.Warning{Code: w.Code, Message: w.Message})
	}
	return messages
}
