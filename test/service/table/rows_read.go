// SPDX-License-Identifier: Apache-2.0

package table

import (
	"context"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

func listOperations(request *pb.ListOperationsRequest) func(context.Context, Clients) (proto.Message, error) {
	return func(ctx context.Context, c Clients) (proto.Message, error) {
		return unwrap(c.Operations.ListOperations(ctx, connect.NewRequest(request)))
	}
}

func listClusters(request *pb.ListClustersRequest) func(context.Context, Clients) (proto.Message, error) {
	return func(ctx context.Context, c Clients) (proto.Message, error) {
		return unwrap(c.Clusters.ListClusters(ctx, connect.NewRequest(request)))
	}
}

func listMachines(request *pb.ListMachinesRequest) func(context.Context, Clients) (proto.Message, error) {
	return func(ctx context.Context, c Clients) (proto.Message, error) {
		return unwrap(c.Clusters.ListMachines(ctx, connect.NewRequest(request)))
	}
}

func getOperation(ref *pb.Reference) func(context.Context, Clients) (proto.Message, error) {
	return func(ctx context.Context, c Clients) (proto.Message, error) {
		return unwrap(c.Operations.GetOperation(ctx, connect.NewRequest(&pb.GetOperationRequest{Ref: ref})))
	}
}

func getCluster(ref *pb.Reference) func(context.Context, Clients) (proto.Message, error) {
	return func(ctx context.Context, c Clients) (proto.Message, error) {
		return unwrap(c.Clusters.GetCluster(ctx, connect.NewRequest(&pb.GetClusterRequest{Ref: ref})))
	}
}

// names checks that an answer lists such objects, in this order, and says how many there are on all pages.
func names(want string, total int32) func(gomega.Gomega, proto.Message, *World) {
	return func(g gomega.Gomega, answer proto.Message, _ *World) {
		var got []string
		switch list := answer.(type) {
		case *pb.ListOperationsResponse:
			for _, op := range list.GetOperations() {
				got = append(got, op.GetRef().GetName())
			}
		case *pb.ListClustersResponse:
			for _, cluster := range list.GetClusters() {
				got = append(got, cluster.GetRef().GetName())
			}
		case *pb.ListMachinesResponse:
			for _, machine := range list.GetMachines() {
				got = append(got, machine.GetRef().GetName())
			}
		}
		g.Expect(strings.Join(got, " ")).To(gomega.Equal(want))
		g.Expect(answer.(interface{ GetTotalSize() int32 }).GetTotalSize()).To(gomega.Equal(total))
	}
}

// blind is a user who may not read operations.
func blind(w *World) {
	w.Denied = func(what authorizationv1.ResourceAttributes) bool {
		return what.Resource == "talosoperations" && (what.Verb == "list" || what.Verb == "get")
	}
}

// stands makes an operation stand for a reason.
func stands(op *v1alpha1.TalosOperation, reason, why string) *v1alpha1.TalosOperation {
	op.Status.Phase = v1alpha1.OperationPaused
	op.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PausedCondition, Status: metav1.ConditionTrue, Reason: reason, Message: why}}
	return op
}

// some are a failed upgrade of c1 and a finished one, beside the one of c2.
func some(more ...client.Object) []client.Object {
	return append(more, stands(failed("c1-talos-x"), v1alpha1.StepFailedReason, "machine c1-w-1: it broke; then: ichor operation resume c1-talos-x"), completed("c1-talos-a"))
}

// works is an operation that works on machine c1-w-1, and failed there.
func works() *v1alpha1.TalosOperation {
	return changed(Operation("c1-talos-w", Cluster), func(op *v1alpha1.TalosOperation) {
		op.Status.Phase = v1alpha1.OperationInProgress
		op.Status.Machines = []v1alpha1.UnitStatus{{Name: "c1-w-1", Phase: v1alpha1.UnitInProgress, Step: "Draining", FailureTime: metav1.NewTime(now)}}
	})
}

// idleMachines checks that nothing of an operation is said of machines.
func idleMachines(g gomega.Gomega, machines []*pb.Machine) {
	g.Expect(machines).NotTo(gomega.BeEmpty())
	for _, machine := range machines {
		g.Expect(machine.GetOperation()).To(gomega.BeNil())
		g.Expect(machine.GetStep()).To(gomega.BeEmpty())
		g.Expect(machine.GetAttention()).NotTo(gomega.Equal(pb.Attention_ATTENTION_FAILED))
	}
}

// lists are requests for what there is.
func lists() []Row {
	page := func(size int32) func(context.Context, Clients) (proto.Message, error) {
		return listOperations(&pb.ListOperationsRequest{OrderBy: "name", Page: &pb.Page{Size: size}})
	}
	return []Row{
		{Name: "list/operations", Given: given(some()...), Call: listOperations(&pb.ListOperationsRequest{}), Check: names("c1-talos-a c1-talos-x c2-talos-other", 3)},
		{
			Name: "list/operations that need somebody", Given: given(some()...),
			Call:  listOperations(&pb.ListOperationsRequest{Filter: &pb.OperationFilter{MinAttention: pb.Attention_ATTENTION_PERSON, Clusters: []*pb.Reference{ref(Cluster)}}}),
			Check: names("c1-talos-x", 1),
		},
		{Name: "list/a page", Given: given(some()...), Call: page(2), Check: names("c1-talos-a c1-talos-x", 3)},
		{
			Name: "list/the next page", Given: given(some()...), Check: names("c2-talos-other", 3),
			Call: func(ctx context.Context, c Clients) (proto.Message, error) {
				first, err := page(2)(ctx, c)
				if err != nil {
					return nil, err
				}
				token := first.(*pb.ListOperationsResponse).GetNextPageToken()
				return listOperations(&pb.ListOperationsRequest{OrderBy: "name", Page: &pb.Page{Size: 2, Token: token}})(ctx, c)
			},
		},
		invalid("list/a large page", `page.size "1001": a number from 1 to 1000; 0 means 100`, page(1001)),
		invalid("list/order of nothing", `order_by "color": one of attention, cluster, completion_time, create_time, kind, name, phase, start_time, with asc or desc after it`,
			listOperations(&pb.ListOperationsRequest{OrderBy: "color"})),
		invalid("list/another hub", `filter.clusters[0].hub "hub-2": empty, for the hub that is asked`,
			listOperations(&pb.ListOperationsRequest{Filter: &pb.OperationFilter{Clusters: []*pb.Reference{{Hub: "hub-2", Namespace: Namespace}}}})),
		{Name: "list/what nobody may see", Given: with(blind, some()...), Call: listOperations(&pb.ListOperationsRequest{}), Check: names("", 0)},
		{
			Name: "list/a namespace that nobody may see", Given: with(blind, some()...), Code: connect.CodePermissionDenied,
			Call:    listOperations(&pb.ListOperationsRequest{Filter: &pb.OperationFilter{Namespaces: []string{Namespace}}}),
			Message: `user "jane@example.org" may not list talosoperations in namespace "default"`,
		},
		{Name: "list/clusters", Given: given(some()...), Call: listClusters(&pb.ListClustersRequest{Filter: &pb.ClusterFilter{Text: "V1.13"}}), Check: names("c1", 1)},
		{Name: "list/clusters that nothing says", Call: listClusters(&pb.ListClustersRequest{Filter: &pb.ClusterFilter{Text: "v1.99"}}), Check: names("", 0)},
		{Name: "list/machines", Call: listMachines(&pb.ListMachinesRequest{OrderBy: "role desc"}), Check: names("c1-w-1 c1-w-2 c1-cp-1 c1-cp-2 c1-cp-3", 5)},
		{
			Name: "list/machines that an operation works on", Given: given(works()), Call: listMachines(&pb.ListMachinesRequest{Text: "c1-w-1"}),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				g.Expect(answer.(*pb.ListMachinesResponse).GetMachines()[0].GetStep()).To(gomega.Equal("Draining"))
			},
		},
		{
			Name: "list/machines without what nobody may see", Given: with(blind, works()), Call: listMachines(&pb.ListMachinesRequest{Text: "c1-w-1"}),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				idleMachines(g, answer.(*pb.ListMachinesResponse).GetMachines())
			},
		},
		{Name: "list/machines by their Nodes", Call: listMachines(&pb.ListMachinesRequest{Text: "W-2", Clusters: []*pb.Reference{ref(Cluster)}}), Check: names("c1-w-2", 1)},
		invalid("list/machines of no namespace", "clusters[0].namespace is missing: the namespace of the object",
			listMachines(&pb.ListMachinesRequest{Clusters: []*pb.Reference{{Name: Cluster}}})),
	}
}

// bounds are requests that ask for too much, or for what no object is named.
func bounds() []Row {
	const (
		nameRule      = "lower-case letters, digits, dashes and dots, a letter or a digit first and last"
		namespaceRule = "1 to 63 lower-case letters, digits and dashes, no dash first or last"
	)
	elsewhere := &pb.Reference{Namespace: "other", Name: Cluster}
	operations := func(filter *pb.OperationFilter) func(context.Context, Clients) (proto.Message, error) {
		return listOperations(&pb.ListOperationsRequest{Filter: filter})
	}
	return []Row{
		invalid("bounds/many namespaces", `filter.namespaces "1001 names": at most 1000`,
			operations(&pb.OperationFilter{Namespaces: slices.Repeat([]string{Namespace}, 1001)})),
		invalid("bounds/many names", `filter.names "1001 names": at most 1000`,
			listClusters(&pb.ListClustersRequest{Filter: &pb.ClusterFilter{Names: slices.Repeat([]*pb.Reference{ref(Cluster)}, 1001)}})),
		{Name: "bounds/as many as may be", Call: operations(&pb.OperationFilter{Namespaces: slices.Repeat([]string{Namespace}, 1000)}), Check: names("c2-talos-other", 1)},
		invalid("bounds/a path", `ref.name "../secrets/x": `+nameRule, pause("../secrets/x", true)),
		invalid("bounds/no path to read", `ref.name "../secrets/x": `+nameRule, getOperation(ref("../secrets/x"))),
		invalid("bounds/no namespace", `ref.namespace "A_b": `+namespaceRule, getCluster(&pb.Reference{Namespace: "A_b", Name: Cluster})),
		invalid("bounds/no namespace of a filter", `filter.namespaces "A_b": `+namespaceRule, operations(&pb.OperationFilter{Namespaces: []string{"A_b"}})),
		invalid("bounds/a long value", `ref.name "`+strings.Repeat("X_", 40)+`"…: `+nameRule, getOperation(ref(strings.Repeat("X_", 1500)))),
		invalid("bounds/a name outside of the namespaces", `filter.names[0].namespace "other": one of the namespaces that the filter names`,
			operations(&pb.OperationFilter{Namespaces: []string{Namespace}, Names: []*pb.Reference{elsewhere}})),
	}
}

// gets are requests for one object.
func gets() []Row {
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "e-1"}, Type: corev1.EventTypeWarning, Reason: v1alpha1.StepFailedReason, Message: "it broke",
		InvolvedObject: corev1.ObjectReference{Kind: "TalosOperation", Name: "c1-talos-x", UID: "uid-c1-talos-x"}, LastTimestamp: metav1.NewTime(now),
	}
	return []Row{
		{
			Name: "get/operation", Given: given(some(event)...), Call: getOperation(ref("c1-talos-x")),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				response := answer.(*pb.GetOperationResponse)
				g.Expect(response.GetOperation().GetAnswer().GetWhy()).To(gomega.Equal("machine c1-w-1: it broke"))
				g.Expect(response.GetOperation().GetAnswer().GetCommand()).To(gomega.Equal("ichor operation resume c1-talos-x -n default"))
				g.Expect(response.GetEvents()).To(gomega.HaveLen(1))
			},
		},
		{
			Name: "get/no operation", Call: getOperation(ref("c1-talos-9")), Code: connect.CodeNotFound,
			Message: `there is no operation "c1-talos-9" in namespace "default"; list them with: ichor operation list`,
		},
		{
			Name: "get/operation that nobody may see", Given: with(blind, some()...), Call: getOperation(ref("c1-talos-x")),
			Code: connect.CodePermissionDenied, Message: "jane@example.org may not get talosoperations in namespace default",
		},
		invalid("get/operation without a name", "ref.name is missing: the name of an object", getOperation(ref(""))),
		{
			Name: "get/cluster", Given: given(some()...), Call: getCluster(ref(Cluster)),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				response := answer.(*pb.GetClusterResponse)
				g.Expect(response.GetMachines()).To(gomega.HaveLen(5))
				g.Expect(response.GetCluster().GetOperations()).To(gomega.HaveLen(1))
				g.Expect(response.GetCluster().GetAttention()).To(gomega.Equal(pb.Attention_ATTENTION_FAILED))
			},
		},
		{
			Name: "get/cluster without what nobody may see", Given: with(blind, some(works())...), Call: getCluster(ref(Cluster)),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				idleMachines(g, answer.(*pb.GetClusterResponse).GetMachines())
				g.Expect(answer.(*pb.GetClusterResponse).GetCluster().GetOperations()).To(gomega.BeEmpty())
			},
		},
		{
			Name: "get/no cluster", Call: getCluster(ref("c9")), Code: connect.CodeNotFound,
			Message: `there is no cluster "c9" in namespace "default"; list them with: ichor cluster list`,
		},
	}
}

// watches are streams, until all that there is has come. What has come is the answer.
func watches() []Row {
	operations := func(filter *pb.OperationFilter) func(context.Context, Clients) (proto.Message, error) {
		return func(ctx context.Context, c Clients) (proto.Message, error) {
			stream, err := c.Operations.WatchOperations(ctx, connect.NewRequest(&pb.WatchOperationsRequest{Filter: filter}))
			if err != nil {
				return nil, err
			}
			defer stream.Close() //nolint:errcheck // It was only read.
			all := &pb.ListOperationsResponse{}
			for stream.Receive() && stream.Msg().GetSynced() == nil {
				all.Operations = append(all.Operations, stream.Msg().GetChanged())
				all.TotalSize++
			}
			return all, stream.Err()
		}
	}
	clusters := func(ctx context.Context, c Clients) (proto.Message, error) {
		stream, err := c.Clusters.WatchClusters(ctx, connect.NewRequest(&pb.WatchClustersRequest{Machines: true}))
		if err != nil {
			return nil, err
		}
		defer stream.Close() //nolint:errcheck // It was only read.
		all := &pb.GetClusterResponse{}
		for stream.Receive() && stream.Msg().GetSynced() == nil {
			if machine := stream.Msg().GetMachineChanged(); machine != nil {
				all.Machines = append(all.Machines, machine)
			} else {
				all.Cluster = stream.Msg().GetChanged()
			}
		}
		return all, stream.Err()
	}
	return []Row{
		{Name: "watch/operations", Given: given(some()...), Call: operations(nil), Check: names("c1-talos-a c1-talos-x c2-talos-other", 3)},
		{Name: "watch/operations that failed", Given: given(some()...), Call: operations(&pb.OperationFilter{Text: "it BROKE"}), Check: names("c1-talos-x", 1)},
		{
			Name: "watch/a namespace that nobody may see", Given: with(blind, some()...), Code: connect.CodePermissionDenied,
			Call:    operations(&pb.OperationFilter{Namespaces: []string{Namespace}}),
			Message: `user "jane@example.org" may not list talosoperations in namespace "default"`,
		},
		invalid("watch/a namespace without a name", "filter.namespaces is missing: the name of a namespace", operations(&pb.OperationFilter{Namespaces: []string{""}})),
		{Name: "watch/clusters and machines", Given: given(some()...), Call: clusters, Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
			g.Expect(answer.(*pb.GetClusterResponse).GetCluster().GetRef().GetName()).To(gomega.Equal(Cluster))
			g.Expect(answer.(*pb.GetClusterResponse).GetMachines()).To(gomega.HaveLen(5))
		}},
	}
}
