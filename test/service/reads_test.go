// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/audit"
	"ichor.maesh.dev/hub/hub/fleet"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/hub/service"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/test/service/table"
)

// readWorld is a world that is read: of a fleet, which nothing changes, and an audit. Nobody may read namespace secret, and nobody knows what
// namespace away has.
type readWorld struct {
	*table.World

	fleet *fleet.Fleet
	audit *audit.Log
	reads client.Client
}

func newReadWorld() *readWorld {
	w := &readWorld{World: table.NewWorld(), fleet: fleet.New(), audit: audit.NewLog()}
	w.fleet.MarkSynced()
	w.audit.MarkSynced()
	w.fleet.Apply(&v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: table.Namespace, Name: "c1", Labels: map[string]string{"region": "eu"}}})
	for i := range 3 {
		w.fleet.Apply(table.Machine(fmt.Sprintf("c1-cp-%d", i+1), v1alpha1.ControlPlaneRole), table.Operation(fmt.Sprintf("op-%d", i+1), "c1"))
	}
	hidden := table.Operation("hidden", "c9")
	hidden.Namespace = "secret"
	w.fleet.Apply(hidden)
	for i := range 3 {
		w.audit.Put(&v1alpha1.AuditEntry{
			ObjectMeta: metav1.ObjectMeta{Namespace: table.Namespace, Name: fmt.Sprintf("entry-%d", i+1), ResourceVersion: fmt.Sprint(i + 1)},
			Spec:       v1alpha1.AuditEntrySpec{User: "jane", Action: "CreateOperation", ClusterName: "c1"},
		})
	}
	w.reads = fake.NewClientBuilder().WithScheme(scheme.New()).WithIndex(&corev1.Event{}, "involvedObject.uid", func(client.Object) []string { return nil }).Build()
	w.Denied = func(what authorizationv1.ResourceAttributes) bool { return what.Namespace != table.Namespace }
	return w
}

// Session implements service.Backend.
func (w *readWorld) Session(ctx context.Context) (*service.Session, error) {
	session, err := w.World.Session(ctx)
	session.Client, session.Rights = w.reads, w
	return session, err
}

// Fleet implements service.Backend.
func (w *readWorld) Fleet(context.Context, ...string) (*fleet.Fleet, []*pb.Failure, error) {
	return w.fleet, []*pb.Failure{{Scope: &pb.Reference{Namespace: "away"}, Code: "unavailable", Message: "nobody answers"}}, nil
}

// Live implements service.Live: who watches would be told of nothing that is missing, so nothing is.
func (w *readWorld) Live(context.Context, ...string) (*fleet.Fleet, []*pb.Failure, error) {
	return w.fleet, nil, nil
}

// Audit implements service.Audited.
func (w *readWorld) Audit(context.Context, ...string) (*audit.Log, []*pb.Failure, error) {
	return w.audit, nil, nil
}

// Readable implements service.Rights.
func (w *readWorld) Readable(_ context.Context, _ string, namespaces []string) (map[string]bool, []*pb.Failure) {
	return map[string]bool{table.Namespace: slices.Contains(namespaces, table.Namespace)}, nil
}

// question is something that is asked.
type question func(context.Context, table.Clients) ([]proto.Message, error)

// one is a question with one answer.
func one[Q, A any, M interface {
	*A
	proto.Message
}](of func(table.Clients) func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), request *Q) question {
	return func(ctx context.Context, c table.Clients) ([]proto.Message, error) {
		response, err := of(c)(ctx, connect.NewRequest(request))
		if err != nil {
			return nil, err
		}
		return []proto.Message{M(response.Msg)}, nil
	}
}

// many is a question whose answers come as a stream, up to the one that says that all that there was has been sent.
func many[Q, A any, M interface {
	*A
	proto.Message
	GetSynced() *pb.Synced
}](of func(table.Clients) func(context.Context, *connect.Request[Q]) (*connect.ServerStreamForClient[A], error), request *Q) question {
	return func(ctx context.Context, c table.Clients) ([]proto.Message, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := of(c)(ctx, connect.NewRequest(request))
		if err != nil {
			return nil, err
		}
		var answers []proto.Message
		for stream.Receive() {
			answers = append(answers, M(stream.Msg()))
			if M(stream.Msg()).GetSynced() != nil {
				return answers, nil
			}
		}
		return answers, stream.Err()
	}
}

func listOperations(change func(*pb.ListOperationsRequest)) question {
	request := &pb.ListOperationsRequest{OrderBy: "name"}
	change(request)
	return one(func(c table.Clients) func(context.Context, *connect.Request[pb.ListOperationsRequest]) (*connect.Response[pb.ListOperationsResponse], error) {
		return c.Operations.ListOperations
	}, request)
}

func getOperation(namespace, name string) question {
	return one(func(c table.Clients) func(context.Context, *connect.Request[pb.GetOperationRequest]) (*connect.Response[pb.GetOperationResponse], error) {
		return c.Operations.GetOperation
	}, &pb.GetOperationRequest{Ref: &pb.Reference{Namespace: namespace, Name: name}})
}

func watchOperations(request *pb.WatchOperationsRequest) question {
	return many(func(c table.Clients) func(context.Context, *connect.Request[pb.WatchOperationsRequest]) (*connect.ServerStreamForClient[pb.WatchOperationsResponse], error) {
		return c.Operations.WatchOperations
	}, request)
}

func listClusters(selector string) question {
	return one(func(c table.Clients) func(context.Context, *connect.Request[pb.ListClustersRequest]) (*connect.Response[pb.ListClustersResponse], error) {
		return c.Clusters.ListClusters
	}, &pb.ListClustersRequest{Filter: &pb.ClusterFilter{LabelSelector: selector}})
}

func getCluster(name string) question {
	return one(func(c table.Clients) func(context.Context, *connect.Request[pb.GetClusterRequest]) (*connect.Response[pb.GetClusterResponse], error) {
		return c.Clusters.GetCluster
	}, &pb.GetClusterRequest{Ref: &pb.Reference{Namespace: table.Namespace, Name: name}})
}

func watchClusters() question {
	return many(func(c table.Clients) func(context.Context, *connect.Request[pb.WatchClustersRequest]) (*connect.ServerStreamForClient[pb.WatchClustersResponse], error) {
		return c.Clusters.WatchClusters
	}, &pb.WatchClustersRequest{Machines: true})
}

func listMachines(order string) question {
	return one(func(c table.Clients) func(context.Context, *connect.Request[pb.ListMachinesRequest]) (*connect.Response[pb.ListMachinesResponse], error) {
		return c.Clusters.ListMachines
	}, &pb.ListMachinesRequest{OrderBy: order})
}

func getHub() question {
	return one(func(c table.Clients) func(context.Context, *connect.Request[pb.GetHubRequest]) (*connect.Response[pb.GetHubResponse], error) {
		return c.Hub.GetHub
	}, &pb.GetHubRequest{})
}

func getSession() question {
	return one(func(c table.Clients) func(context.Context, *connect.Request[pb.GetSessionRequest]) (*connect.Response[pb.GetSessionResponse], error) {
		return c.Hub.GetSession
	}, &pb.GetSessionRequest{Namespaces: []string{table.Namespace, "secret"}})
}

func listAudit(filter *pb.AuditFilter) question {
	return one(func(c table.Clients) func(context.Context, *connect.Request[pb.ListAuditRequest]) (*connect.Response[pb.ListAuditResponse], error) {
		return c.Audit.ListAudit
	}, &pb.ListAuditRequest{Filter: filter})
}

func watchAudit() question {
	return many(func(c table.Clients) func(context.Context, *connect.Request[pb.WatchAuditRequest]) (*connect.ServerStreamForClient[pb.WatchAuditResponse], error) {
		return c.Audit.WatchAudit
	}, &pb.WatchAuditRequest{})
}

func operationsOf(filter *pb.OperationFilter) question {
	return listOperations(func(r *pb.ListOperationsRequest) { r.Filter = filter })
}

// reads are questions, and what their answers have to say.
var reads = map[string]struct {
	ask  question
	says []string
}{
	"hub":     {getHub(), []string{"v0.4.0"}},
	"session": {getSession(), []string{table.User, "talos"}},

	"operations":                   {operationsOf(nil), []string{"op-1", "op-3", "nobody answers", "totalSize 3"}},
	"operations of some text":      {operationsOf(&pb.OperationFilter{Text: "OP-2"}), []string{"op-2", "totalSize 1"}},
	"operations of a page":         {listOperations(func(r *pb.ListOperationsRequest) { r.Page = &pb.Page{Size: 2} }), []string{"op-2", "nextPageToken"}},
	"operations in no order":       {listOperations(func(r *pb.ListOperationsRequest) { r.OrderBy = "colour" }), []string{"invalid_argument", "order_by", "colour", "create_time"}},
	"operations of no page":        {listOperations(func(r *pb.ListOperationsRequest) { r.Page = &pb.Page{Size: 5000} }), []string{"invalid_argument", "5000"}},
	"operations of a made up page": {listOperations(func(r *pb.ListOperationsRequest) { r.Page = &pb.Page{Token: "x"} }), []string{"invalid_argument", "page.token"}},
	"operations of no selector":    {operationsOf(&pb.OperationFilter{LabelSelector: "a b"}), []string{"invalid_argument", "label_selector"}},
	"operations of who may not":    {operationsOf(&pb.OperationFilter{Namespaces: []string{"secret"}}), []string{"permission_denied", "secret"}},
	"operation":                    {getOperation(table.Namespace, "op-1"), []string{"op-1"}},
	"operation that is not":        {getOperation(table.Namespace, "op-9"), []string{"not_found", "op-9"}},
	"operation of no namespace":    {getOperation("", "op-1"), []string{"invalid_argument", "ref.namespace"}},
	"operation of who may not":     {getOperation("secret", "hidden"), []string{"permission_denied"}},
	"operations as they come":      {watchOperations(&pb.WatchOperationsRequest{}), []string{"op-1", "op-3", "synced", "resumeToken"}},
	"operations from nowhere":      {watchOperations(&pb.WatchOperationsRequest{ResumeToken: "x"}), []string{"reset", "op-1", "synced"}},

	"clusters":                {listClusters("region=eu"), []string{"c1", "totalSize 1"}},
	"clusters of no selector": {listClusters("region==="), []string{"invalid_argument", "label_selector"}},
	"cluster":                 {getCluster("c1"), []string{"c1-cp-2"}},
	"cluster that is not":     {getCluster("c7"), []string{"not_found", "c7"}},
	"machines":                {listMachines(""), []string{"c1-cp-1", "c1-cp-3"}},
	"machines in no order":    {listMachines("weight"), []string{"invalid_argument", "order_by", "weight"}},
	"clusters as they come":   {watchClusters(), []string{"c1-cp-3", "synced"}},

	"audit":                {listAudit(nil), []string{"entry-1", "entry-3"}},
	"audit of no result":   {listAudit(&pb.AuditFilter{Results: []pb.AuditResult{77}}), []string{"invalid_argument", "results"}},
	"audit as it comes":    {watchAudit(), []string{"entry-1", "synced"}},
	"audit of who may not": {listAudit(&pb.AuditFilter{Namespaces: []string{"secret"}}), []string{"permission_denied"}},
}

// told is all that a question was answered with, as text.
func told(answers []proto.Message, err error) string {
	var text strings.Builder
	for _, answer := range answers {
		text.WriteString(protojson.Format(answer) + "\n")
	}
	if err != nil {
		text.WriteString(err.Error() + "\n")
	}
	return text.String()
}

// plainly is a text without what makes it JSON.
func plainly(text string) string {
	return strings.Join(strings.Fields(strings.NewReplacer(`"`, " ", ":", " ", ",", " ").Replace(text)), " ")
}

// What is read is the same whichever way it is asked for, streams and refusals included.
func TestTransportsReadTheSame(t *testing.T) {
	world := newReadWorld()
	server := world.Server()
	server.Backend = world
	reference := plain(t, server)
	ways := map[string]table.Clients{}
	for name, transport := range transports(t) {
		ways[name] = transport(t, server)
	}
	for name, row := range reads {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			want := told(row.ask(t.Context(), reference))
			for _, said := range row.says {
				g.Expect(plainly(want)).To(ContainSubstring(said), want)
			}
			for way, clients := range ways {
				g.Expect(told(row.ask(t.Context(), clients))).To(Equal(want), way)
			}
		})
	}
}
