// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"slices"

	"connectrpc.com/connect"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/fleet/render"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// DiffConfig implements the ClusterService. What it tells a controller has found out: the configs themselves hold secrets.
func (s *Server) DiffConfig(ctx context.Context, request *connect.Request[pb.DiffConfigRequest]) (*connect.Response[pb.DiffConfigResponse], error) {
	diffs, err := s.diffConfig(ctx, request.Msg)
	if err != nil {
		return nil, problem(err)
	}
	return connect.NewResponse(&pb.DiffConfigResponse{Machines: diffs}), nil
}

func (s *Server) diffConfig(ctx context.Context, request *pb.DiffConfigRequest) ([]*pb.ConfigDiff, error) {
	key, err := s.key("cluster", request.GetCluster())
	if err != nil {
		return nil, err
	}
	service, _, err := s.reader(ctx)
	if err != nil {
		return nil, err
	}
	facts, err := service.Facts(ctx, key)
	if err != nil {
		return nil, err
	}
	wanted, err := chosen(facts.Approved(), "machines", request.GetMachines(), key.Name)
	if err != nil {
		return nil, err
	}
	diffs := make([]*pb.ConfigDiff, 0, len(wanted))
	for _, machine := range wanted {
		diffs = append(diffs, configDiff(machine))
	}
	return diffs, nil
}

// chosen are the machines that names stand for, each of which may be that of a Node; no name stands for all of them.
func chosen(machines []*v1alpha1.TalosMachine, field string, names []string, cluster string) ([]*v1alpha1.TalosMachine, error) {
	if len(names) == 0 {
		return machines, nil
	}
	var list []*v1alpha1.TalosMachine
	for _, name := range names {
		at := slices.IndexFunc(machines, func(m *v1alpha1.TalosMachine) bool { return m.Name == name || m.Status.NodeName == name })
		if at < 0 {
			return nil, &InvalidError{Field: field, Value: name, Allowed: "an approved machine of cluster " + cluster + "; see: ichor machine list --cluster " + cluster}
		}
		if !slices.Contains(list, machines[at]) {
			list = append(list, machines[at])
		}
	}
	return list, nil
}

func configDiff(machine *v1alpha1.TalosMachine) *pb.ConfigDiff {
	diff := &pb.ConfigDiff{
		Machine: render.Reference(machine.Namespace, machine.Name), Node: machine.Status.NodeName, Role: render.Role(machine.Spec.Role),
	}
	config := machine.Status.Config
	if config == nil {
		diff.Trouble = "the hub has not compared its config yet"
		return diff
	}
	diff.Effect, diff.Diff, diff.Pending, diff.Trouble = string(config.Effect), config.Diff, config.Pending, config.Trouble
	return diff
}
