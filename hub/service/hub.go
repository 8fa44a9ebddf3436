// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/fleet/render"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

const (
	// maxSessionNamespaces is of how many namespaces one call tells the rights.
	maxSessionNamespaces = 1000

	// maxStrangeNamespaces is about how many namespaces a call may ask that nothing is known to be in, so that somebody can begin in one.
	maxStrangeNamespaces = 20

	// oldestClient is the oldest ichor that may write. It is raised by a change that an older one would get wrong.
	oldestClient = "v0.1.0"
)

// GetHub implements the HubService.
func (s *Server) GetHub(ctx context.Context, _ *connect.Request[pb.GetHubRequest]) (*connect.Response[pb.GetHubResponse], error) {
	hub := &pb.GetHubResponse{}
	if s.Hub != nil {
		hub = proto.CloneOf(s.Hub)
	}
	hub.Kinds, hub.OldestClient = knownKinds(), oldestClient
	if s.SignIn != nil {
		hub.SignIn = s.SignIn(ctx)
	}
	return connect.NewResponse(hub), nil
}

// knownKinds are the kinds that this hub plans, in the order of the protocol.
func knownKinds() []pb.OperationKind {
	known := make([]pb.OperationKind, 0, len(planners))
	for kind := range planners {
		known = append(known, render.Kind(kind))
	}
	slices.Sort(known)
	return known
}

// GetSession implements the HubService.
func (s *Server) GetSession(ctx context.Context, request *connect.Request[pb.GetSessionRequest]) (*connect.Response[pb.GetSessionResponse], error) {
	session, err := s.Backend.Session(ctx)
	if err != nil {
		return nil, problem(err)
	}
	namespaces := request.Msg.GetNamespaces()
	if len(namespaces) > maxSessionNamespaces {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("namespaces: there are %d, want at most %d", len(namespaces), maxSessionNamespaces))
	}
	if len(namespaces) == 0 {
		if namespaces, err = s.readableNamespaces(ctx, session); err != nil {
			return nil, err
		}
	}
	asked, err := s.askable(ctx, namespaces)
	if err != nil {
		return nil, err
	}
	rights, err := rightsIn(ctx, session.Rights, namespaces, asked)
	if err != nil {
		return nil, err
	}
	caller := session.Caller
	answer := &pb.GetSessionResponse{User: caller.Name, Groups: caller.Groups, Method: string(caller.Method), Rights: rights}
	if !caller.Expires.IsZero() {
		answer.ExpireTime = timestamppb.New(caller.Expires)
	}
	return connect.NewResponse(answer), nil
}

// readableNamespaces are every one, as an empty name, and those that the caller may read clusters in.
func (s *Server) readableNamespaces(ctx context.Context, session *Session) ([]string, error) {
	fleet, _, err := s.Backend.Fleet(ctx)
	if err != nil {
		return nil, problem(err)
	}
	known := fleet.Namespaces()
	readable, failures := session.readable(ctx, clustersResource, nil, known)
	if err := context.Cause(ctx); err != nil {
		return nil, problem(err)
	}
	if len(failures) > 0 {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New(failures[0].GetMessage()))
	}
	namespaces := []string{""}
	for _, namespace := range known {
		if readable[namespace] {
			namespaces = append(namespaces, namespace)
		}
	}
	return namespaces, nil
}

// askable are those of some namespaces that are asked about: each costs some twenty questions, so a hub does not ask about any name that somebody
// makes up. A command line asks with its user's own rights.
func (s *Server) askable(ctx context.Context, namespaces []string) (func(namespace string) bool, error) {
	if _, own := s.Backend.(Live); own {
		return func(string) bool { return true }, nil
	}
	fleet, _, err := s.Backend.Fleet(ctx)
	if err != nil {
		return nil, problem(err)
	}
	known, asked := sets.New(fleet.Namespaces()...), sets.New[string]()
	strange := 0
	for _, namespace := range namespaces {
		if !known.Has(namespace) && !asked.Has(namespace) {
			strange++
			if strange > maxStrangeNamespaces {
				continue
			}
		}
		asked.Insert(namespace)
	}
	return asked.Has, nil
}

// rightsIn are the rights in some namespaces, in their order. Who may do something everywhere is not asked about it again.
func rightsIn(ctx context.Context, rights Rights, namespaces []string, asked func(string) bool) ([]*pb.NamespaceRights, error) {
	everywhere, err := rightsOf(ctx, rights, "", &pb.NamespaceRights{})
	if err != nil {
		return nil, err
	}
	answers := make([]*pb.NamespaceRights, len(namespaces))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(namespacesAtOnce)
	for i, namespace := range namespaces {
		if namespace == "" {
			answers[i] = everywhere
			continue
		}
		if !asked(namespace) {
			answers[i] = proto.CloneOf(everywhere)
			answers[i].Namespace = namespace
			continue
		}
		group.Go(func() (err error) {
			answers[i], err = rightsOf(ctx, rights, namespace, everywhere)
			return err
		})
	}
	return answers, group.Wait()
}

func rightsOf(ctx context.Context, rights Rights, namespace string, everywhere *pb.NamespaceRights) (*pb.NamespaceRights, error) {
	ask := asker{rights: rights, namespace: namespace}
	answer := &pb.NamespaceRights{
		Namespace: namespace,
		Read:      everywhere.GetRead() || ask.own(ctx, clustersResource, "", "list"),
		Operate:   everywhere.GetOperate() || ask.own(ctx, operationsResource, "", "create", "patch", "delete"),
		Override:  everywhere.GetOverride() || ask.own(ctx, operationsResource, "", v1alpha1.OverrideVerb),
		Machines:  everywhere.GetMachines() || ask.own(ctx, machinesResource, "", "patch"),
		Clusters:  everywhere.GetClusters() || ask.clusters(ctx),
	}
	for _, verb := range v1alpha1.StartSubresources() {
		if slices.Contains(everywhere.GetStart(), verb) || ask.own(ctx, operationsResource, verb, v1alpha1.StartVerb) {
			answer.Start = append(answer.Start, verb)
		}
	}
	return answer, ask.err
}

// asker asks for the rights in a namespace. After the first question that has no answer it asks no more.
type asker struct {
	rights    Rights
	namespace string
	err       error
}

// clusters is the right to import clusters and to forget them, which is about their credentials as well.
func (a *asker) clusters(ctx context.Context) bool {
	return a.own(ctx, clustersResource, "", "create", "delete") && a.may(ctx, corev1.GroupName, "secrets", "", "create") &&
		a.may(ctx, clusterv1.GroupVersion.Group, "clusters", "", "create", "delete")
}

// own asks for verbs on a resource of our API.
func (a *asker) own(ctx context.Context, resource, subresource string, verbs ...string) bool {
	return a.may(ctx, v1alpha1.GroupVersion.Group, resource, subresource, verbs...)
}

// may says whether the caller may do all of it.
func (a *asker) may(ctx context.Context, group, resource, subresource string, verbs ...string) bool {
	for _, verb := range verbs {
		if a.err != nil {
			return false
		}
		err := a.rights.May(ctx, authorizationv1.ResourceAttributes{
			Namespace: a.namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource,
		})
		if err != nil {
			if connect.CodeOf(err) != connect.CodePermissionDenied {
				a.err = err
			}
			return false
		}
	}
	return true
}
