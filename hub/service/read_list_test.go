// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/fleet"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

func (w *fleetWorld) listOperations(request *pb.ListOperationsRequest) (*pb.ListOperationsResponse, error) {
	response, err := w.ListOperations(w.t.Context(), connect.NewRequest(request))
	if err != nil {
		return nil, err
	}
	return response.Msg, nil
}

func someOperations() []client.Object {
	return []client.Object{
		opOf("a", "up-1", "c1", created(time.Hour), labelled("team", "x"), func(op *v1alpha1.TalosOperation) {
			op.Annotations = map[string]string{v1alpha1.CreatedByAnnotation: "Grace"}
			op.Status.Phase = v1alpha1.OperationInProgress
			op.Status.StartTime = metav1.NewTime(now.Add(3 * time.Hour))
		}),
		opOf("a", "up-2", "c2", created(2*time.Hour), stands(v1alpha1.StepFailedReason, "The disk is full; then")),
		opOf("a", "boot", "c1", created(0), func(op *v1alpha1.TalosOperation) {
			op.Spec.Kind, op.Spec.Node = v1alpha1.NodeKind, &v1alpha1.NodeParameters{Machine: "m"}
			op.Status.Phase, op.Status.CompletionTime = v1alpha1.OperationCompleted, metav1.NewTime(now.Add(4*time.Hour))
			op.Status.StartTime = metav1.NewTime(now.Add(2 * time.Hour))
		}),
		opOf("b", "up-1", "c1", created(time.Hour), labelled("team", "y"), stands(v1alpha1.ClusterLockHeldReason, "it is held")),
	}
}

func TestOperationFilters(t *testing.T) {
	ref := func(namespace, name string) []*pb.Reference {
		return []*pb.Reference{{Namespace: namespace, Name: name}}
	}
	for name, row := range map[string]struct {
		filter *pb.OperationFilter
		found  string
	}{
		"all, the latest first":   {nil, "up-2 up-1 up-1 boot"},
		"namespace":               {&pb.OperationFilter{Namespaces: []string{"b"}}, "up-1"},
		"cluster":                 {&pb.OperationFilter{Clusters: ref("a", "c1")}, "up-1 boot"},
		"clusters of a namespace": {&pb.OperationFilter{Clusters: ref("a", "")}, "up-2 up-1 boot"},
		"this hub's":              {&pb.OperationFilter{Clusters: []*pb.Reference{{Hub: "here", Namespace: "b", Name: "c1"}}}, "up-1"},
		"names":                   {&pb.OperationFilter{Names: append(ref("a", "boot"), ref("b", "up-1")...)}, "up-1 boot"},
		"kind":                    {&pb.OperationFilter{Kinds: []pb.OperationKind{pb.OperationKind_OPERATION_KIND_NODE}}, "boot"},
		"phase":                   {&pb.OperationFilter{Phases: []pb.OperationPhase{pb.OperationPhase_OPERATION_PHASE_PAUSED}}, "up-2 up-1"},
		"two phases":              {&pb.OperationFilter{Phases: []pb.OperationPhase{pb.OperationPhase_OPERATION_PHASE_PAUSED, pb.OperationPhase_OPERATION_PHASE_COMPLETED}}, "up-2 up-1 boot"},
		"label":                   {&pb.OperationFilter{LabelSelector: "team in (x,z)"}, "up-1"},
		"without the label":       {&pb.OperationFilter{LabelSelector: "!team"}, "up-2 boot"},
		"attention":               {&pb.OperationFilter{MinAttention: pb.Attention_ATTENTION_FAILED}, "up-2"},
		"some attention":          {&pb.OperationFilter{MinAttention: pb.Attention_ATTENTION_WAITING}, "up-2 up-1"},
		"text in a name":          {&pb.OperationFilter{Text: "BOO"}, "boot"},
		"text in a cluster":       {&pb.OperationFilter{Text: "c2"}, "up-2"},
		"text in a creator":       {&pb.OperationFilter{Text: "grace"}, "up-1"},
		"text in a reason":        {&pb.OperationFilter{Text: "the disk"}, "up-2"},
		"every part must hold":    {&pb.OperationFilter{Text: "up", Clusters: ref("a", "c1")}, "up-1"},
		"none":                    {&pb.OperationFilter{Text: "nothing says this"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleetWorld(t, someOperations()...)
			answer, err := w.listOperations(&pb.ListOperationsRequest{Filter: row.filter})
			w.g.Expect(err).NotTo(HaveOccurred())
			w.g.Expect(namesOf(answer.GetOperations())).To(Equal(row.found))
			w.g.Expect(answer.GetTotalSize()).To(BeEquivalentTo(len(strings.Fields(row.found))))
			w.g.Expect(answer.GetNextPageToken()).To(BeEmpty())
		})
	}
}

func TestOperationOrder(t *testing.T) {
	for order, found := range map[string]string{
		"create_time":          "a/boot a/up-1 b/up-1 a/up-2",
		"create_time desc":     "a/up-2 a/up-1 b/up-1 a/boot",
		" create_time  DESC ":  "a/up-2 a/up-1 b/up-1 a/boot",
		"start_time asc":       "b/up-1 a/up-2 a/boot a/up-1", // What has not started comes first.
		"completion_time desc": "a/boot a/up-1 b/up-1 a/up-2",
		"name":                 "a/boot a/up-1 b/up-1 a/up-2",
		"name desc":            "a/up-2 a/up-1 b/up-1 a/boot",
		"cluster":              "a/boot a/up-1 b/up-1 a/up-2",
		"kind desc":            "a/boot a/up-1 b/up-1 a/up-2",
		"phase":                "a/up-1 b/up-1 a/up-2 a/boot",
		"attention desc":       "a/up-2 b/up-1 a/boot a/up-1",
	} {
		t.Run(order, func(t *testing.T) {
			w := newFleetWorld(t, someOperations()...)
			answer, err := w.listOperations(&pb.ListOperationsRequest{OrderBy: order})
			w.g.Expect(err).NotTo(HaveOccurred())
			var names []string
			for _, op := range answer.GetOperations() {
				names = append(names, op.GetRef().GetNamespace()+"/"+op.GetRef().GetName())
			}
			w.g.Expect(strings.Join(names, " ")).To(Equal(found))
		})
	}
}

func TestRequestsThatAskForWhatCannotBe(t *testing.T) {
	for name, row := range map[string]struct {
		request *pb.ListOperationsRequest
		says    []string
	}{
		"order":            {&pb.ListOperationsRequest{OrderBy: "color"}, []string{`order_by "color"`, "attention, cluster, completion_time, create_time, kind, name, phase, start_time"}},
		"direction":        {&pb.ListOperationsRequest{OrderBy: "name up"}, []string{`order_by "name up"`, "asc or desc"}},
		"too many":         {&pb.ListOperationsRequest{Page: &pb.Page{Size: 1001}}, []string{`page.size "1001"`, "1 to 1000"}},
		"too few":          {&pb.ListOperationsRequest{Page: &pb.Page{Size: -1}}, []string{`page.size "-1"`}},
		"token":            {&pb.ListOperationsRequest{Page: &pb.Page{Token: "%"}}, []string{`page.token "%"`, "next_page_token"}},
		"token of nothing": {&pb.ListOperationsRequest{Page: &pb.Page{Token: "bnVsbA"}}, []string{"page.token"}},
		"selector":         {&pb.ListOperationsRequest{Filter: &pb.OperationFilter{LabelSelector: "a in b"}}, []string{`filter.label_selector "a in b"`, "label selector"}},
		"kind":             {&pb.ListOperationsRequest{Filter: &pb.OperationFilter{Kinds: []pb.OperationKind{0}}}, []string{"filter.kinds", "OPERATION_KIND_TALOS, "}},
		"kind of a newer":  {&pb.ListOperationsRequest{Filter: &pb.OperationFilter{Kinds: []pb.OperationKind{99}}}, []string{`filter.kinds "99"`}},
		"phase":            {&pb.ListOperationsRequest{Filter: &pb.OperationFilter{Phases: []pb.OperationPhase{99}}}, []string{"filter.phases", "OPERATION_PHASE_PAUSED"}},
		"attention":        {&pb.ListOperationsRequest{Filter: &pb.OperationFilter{MinAttention: 99}}, []string{"filter.min_attention", "ATTENTION_FAILED"}},
		"namespace":        {&pb.ListOperationsRequest{Filter: &pb.OperationFilter{Namespaces: []string{""}}}, []string{"filter.namespaces"}},
		"another hub":      {&pb.ListOperationsRequest{Filter: &pb.OperationFilter{Names: []*pb.Reference{{Namespace: "a", Name: "x"}, {Hub: "there", Namespace: "a", Name: "x"}}}}, []string{`filter.names[1].hub "there"`}},
		"no namespace":     {&pb.ListOperationsRequest{Filter: &pb.OperationFilter{Clusters: []*pb.Reference{{Name: "x"}}}}, []string{"filter.clusters[0].namespace"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleetWorld(t, someOperations()...)
			_, err := w.listOperations(row.request)
			w.expectCode(err, connect.CodeInvalidArgument, row.says...)
		})
	}
}

// A token belongs to what was listed: the filter, and the order.
func TestTokenOfAnotherList(t *testing.T) {
	w := newFleetWorld(t, someOperations()...)
	first, err := w.listOperations(&pb.ListOperationsRequest{Page: &pb.Page{Size: 1}})
	w.g.Expect(err).NotTo(HaveOccurred())
	page := &pb.Page{Size: 3, Token: first.GetNextPageToken()}
	rest, err := w.listOperations(&pb.ListOperationsRequest{Page: page, Filter: &pb.OperationFilter{}})
	w.g.Expect(err).NotTo(HaveOccurred(), "another size is the same list")
	w.g.Expect(rest.GetOperations()).To(HaveLen(3))
	for _, other := range []*pb.ListOperationsRequest{{Page: page, OrderBy: "name"}, {Page: page, Filter: &pb.OperationFilter{Text: "up"}}} {
		_, err = w.listOperations(other)
		w.expectCode(err, connect.CodeInvalidArgument, "page.token", "the same filter and order_by")
	}
}

// Pages together are the list, in every order; and while operations come, go and change between pages, none that stays as it is comes twice
// or is missing.
func TestPagesTogetherAreTheList(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	kinds := []v1alpha1.OperationKind{v1alpha1.TalosKind, v1alpha1.KubernetesKind, v1alpha1.CNIKind}
	anyOperation := func(i int) *v1alpha1.TalosOperation {
		return opOf(fmt.Sprintf("n%d", random.IntN(3)), fmt.Sprintf("op-%d", i), fmt.Sprintf("c%d", random.IntN(5)), created(time.Duration(random.IntN(9))*time.Minute), func(op *v1alpha1.TalosOperation) {
			op.Spec.Kind = kinds[random.IntN(len(kinds))]
			if random.IntN(2) == 0 {
				op.Status.StartTime = metav1.NewTime(now.Add(time.Duration(random.IntN(9)) * time.Minute))
			}
			if random.IntN(3) == 0 {
				stands(v1alpha1.StepFailedReason, "why")(op)
			}
		})
	}
	for _, field := range sortedKeys(operationFields) {
		for _, direction := range []string{"", " desc"} {
			t.Run(field+direction, func(t *testing.T) {
				w := newFleetWorld(t)
				var staying []string
				for i := range 60 {
					op := anyOperation(i)
					w.fleet.Apply(op)
					if i%3 > 0 { // The others come, go and change.
						staying = append(staying, op.Name)
					}
				}
				whole, err := w.listOperations(&pb.ListOperationsRequest{OrderBy: field + direction, Page: &pb.Page{Size: 1000}})
				w.g.Expect(err).NotTo(HaveOccurred())
				quiet := w.pages(field+direction, func() {})
				w.g.Expect(namesOf(quiet)).To(Equal(namesOf(whole.GetOperations())))

				busy := w.pages(field+direction, func() {
					for range 5 {
						op := anyOperation(3 * random.IntN(30))
						if random.IntN(2) == 0 {
							w.fleet.Delete(op)
						} else {
							w.fleet.Apply(op)
						}
					}
				})
				stays := func(ops []*pb.Operation) string {
					return namesOf(slices.DeleteFunc(slices.Clone(ops), func(op *pb.Operation) bool { return !slices.Contains(staying, op.GetRef().GetName()) }))
				}
				w.g.Expect(stays(busy)).To(Equal(stays(quiet)))
			})
		}
	}
}

// pages reads a list page by page, and does something in between.
func (w *fleetWorld) pages(order string, between func()) (all []*pb.Operation) {
	w.t.Helper()
	request := &pb.ListOperationsRequest{OrderBy: order, Page: &pb.Page{Size: 7}}
	for {
		answer, err := w.listOperations(request)
		w.g.Expect(err).NotTo(HaveOccurred())
		w.g.Expect(len(answer.GetOperations())).To(BeNumerically("<=", 7))
		all = append(all, answer.GetOperations()...)
		if answer.GetNextPageToken() == "" {
			return all
		}
		request.Page.Token = answer.GetNextPageToken()
		between()
	}
}

func TestVersionKeysSortAsVersions(t *testing.T) {
	g := NewWithT(t)
	in := []string{"", "unknown", "v1.9.10", "v1.10.0-alpha.9", "v1.10.0-alpha.10", "v1.10.0-beta", "v1.10.0", "1.10.2", "v2.0.0"}
	g.Expect(slices.IsSortedFunc(in, func(a, b string) int { return strings.Compare(versionKey(a), versionKey(b)) })).To(BeTrue())
}

func TestTimeKeysSortAsTimes(t *testing.T) {
	g := NewWithT(t)
	in := []time.Time{time.Unix(-5, 0), time.Unix(0, 0), time.Unix(0, 7), time.Unix(1<<33, 0)}
	var keys []string
	for _, at := range in {
		keys = append(keys, timeKey(timestamppb.New(at)))
	}
	g.Expect(slices.IsSorted(keys)).To(BeTrue())
	g.Expect(timeKey(nil)).To(BeEmpty())
}

func TestRightsOfLists(t *testing.T) {
	w := newFleetWorld(t, someOperations()...)
	w.rights.deny("talosoperations a")
	answer, err := w.listOperations(&pb.ListOperationsRequest{})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(namesOf(answer.GetOperations())).To(Equal("up-1"), "what may not be read is left out")
	w.g.Expect(answer.GetTotalSize()).To(BeEquivalentTo(1), "and is not counted")
	w.g.Expect(answer.GetFailures()).To(BeEmpty())

	for _, filter := range []*pb.OperationFilter{
		{Namespaces: []string{"b", "a"}}, {Clusters: []*pb.Reference{{Namespace: "a"}}}, {Names: []*pb.Reference{{Namespace: "a", Name: "nobody"}}},
	} {
		_, err = w.listOperations(&pb.ListOperationsRequest{Filter: filter})
		w.expectCode(err, connect.CodePermissionDenied, `user "ada" may not list talosoperations in namespace "a"`)
	}

	w.rights.deny()
	w.rights.lose("talosoperations a")
	w.failures = []*pb.Failure{{Message: "an earlier one"}}
	answer, err = w.listOperations(&pb.ListOperationsRequest{Filter: &pb.OperationFilter{Namespaces: []string{"a", "b"}}})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(namesOf(answer.GetOperations())).To(Equal("up-1"))
	w.g.Expect(answer.GetFailures()).To(HaveLen(2))
	w.g.Expect(answer.GetFailures()[1].GetMessage()).To(Equal("nobody knows"))
	w.g.Expect(w.failures).To(HaveLen(1))
}

func TestFleetThatCannotAnswer(t *testing.T) {
	w := newFleetWorld(t)
	w.fleet = fleet.New()
	_, err := w.listOperations(&pb.ListOperationsRequest{})
	w.expectCode(err, connect.CodeUnavailable, "not read everything yet")
	w.fleet.MarkSynced()
	w.fleet.Close(fleet.ErrStopping)
	_, err = w.listOperations(&pb.ListOperationsRequest{})
	w.expectCode(err, connect.CodeUnavailable, "stopping")
}

func (w *fleetWorld) getOperation(ref *pb.Reference) (*pb.GetOperationResponse, error) {
	response, err := w.GetOperation(w.t.Context(), connect.NewRequest(&pb.GetOperationRequest{Ref: ref}))
	if err != nil {
		return nil, err
	}
	return response.Msg, nil
}

func TestGetOperation(t *testing.T) {
	at := func(event *corev1.Event, name string, seconds int) *corev1.Event {
		event.Namespace, event.Name, event.Reason = "a", name, name
		event.InvolvedObject.UID = "uid-of-x"
		event.LastTimestamp = metav1.NewTime(now.Add(time.Duration(seconds) * time.Second))
		return event
	}
	series := at(&corev1.Event{Series: &corev1.EventSeries{Count: 7, LastObservedTime: metav1.NewMicroTime(now.Add(2 * time.Second))}}, "second", 90)
	recent := at(&corev1.Event{}, "third", 0)
	recent.LastTimestamp, recent.EventTime = metav1.Time{}, metav1.NewMicroTime(now.Add(3*time.Second))
	other := at(&corev1.Event{}, "of an earlier one of the same name", 0)
	other.InvolvedObject.UID = "uid-of-y"
	w := newFleetWorld(t, someOperations()...)
	w.client = eventClient(recent, at(&corev1.Event{Type: "Warning", Message: "words"}, "first", 1), series, other)
	answer, err := w.getOperation(&pb.Reference{Namespace: "a", Name: "boot"})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(answer.GetOperation().GetRef().GetName()).To(Equal("boot"))
	var events []string
	for _, event := range answer.GetEvents() {
		events = append(events, fmt.Sprintf("%s %d %t %s %s", event.GetReason(), event.GetCount(), event.GetWarning(), event.GetMessage(), event.GetTime().AsTime().Sub(now)))
	}
	w.g.Expect(events).To(Equal([]string{"first 1 true words 1s", "second 7 false  2s", "third 1 false  3s"}))

	w.client = interceptor.NewClient(eventClient().(client.WithWatch), interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { //nolint:forcetypeassert // The fake one can.
		return apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no right"))
	}})
	answer, err = w.getOperation(&pb.Reference{Namespace: "a", Name: "boot"})
	w.g.Expect(err).NotTo(HaveOccurred(), "events are left out")
	w.g.Expect(answer.GetEvents()).To(BeEmpty())

	w.rights.deny("talosoperations a/boot")
	_, err = w.getOperation(&pb.Reference{Namespace: "a", Name: "boot"})
	w.expectCode(err, connect.CodePermissionDenied)
	for field, ref := range map[string]*pb.Reference{"ref.namespace": nil, "ref.name": {Namespace: "a"}, "ref.hub": {Hub: "there", Namespace: "a", Name: "boot"}} {
		_, err = w.getOperation(ref)
		w.expectCode(err, connect.CodeInvalidArgument, field)
	}
}

// Who has just created an operation may ask before the informers have heard of it.
func TestGetWaitsAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFleetWorld(t)
		begun := time.Now()
		_, err := w.getOperation(&pb.Reference{Namespace: "a", Name: "up"})
		w.expectCode(err, connect.CodeNotFound, `there is no operation "up" in namespace "a"; list them with: ichor operation list`)
		w.g.Expect(time.Since(begun)).To(Equal(catchUp))
		time.AfterFunc(catchUp/3, func() { w.fleet.Apply(opOf("a", "another", "c1")) })
		time.AfterFunc(catchUp/2, func() { w.fleet.Apply(opOf("a", "up", "c1")) })
		begun = time.Now()
		answer, err := w.getOperation(&pb.Reference{Namespace: "a", Name: "up"})
		w.g.Expect(err).NotTo(HaveOccurred())
		w.g.Expect(answer.GetOperation()).NotTo(BeNil())
		w.g.Expect(time.Since(begun)).To(Equal(catchUp / 2))
	})
}

// Where a list failed nobody knows whether something is there.
func TestGetOfWhatCouldNotBeRead(t *testing.T) {
	w := newFleetWorld(t)
	loaded, _, err := fleet.Load(t.Context(), eventClient(), "a")
	w.g.Expect(err).NotTo(HaveOccurred())
	w.fleet = loaded
	_, err = w.getOperation(&pb.Reference{Namespace: "a", Name: "up"})
	w.expectCode(err, connect.CodeNotFound)
	w.failures = []*pb.Failure{{Scope: &pb.Reference{Namespace: "a"}, Message: "listing talosoperations: broken"}}
	_, err = w.getOperation(&pb.Reference{Namespace: "a", Name: "up"})
	w.expectCode(err, connect.CodeUnavailable, "listing talosoperations: broken")
}

func someClusters() []client.Object {
	return []client.Object{
		clusterOf("a", "c1", expires, func(c *v1alpha1.TalosCluster) {
			c.CreationTimestamp = metav1.NewTime(now.Add(time.Hour))
			c.Status.KubernetesVersion = "v1.9.0"
		}),
		clusterOf("a", "c2", func(c *v1alpha1.TalosCluster) { c.Labels = map[string]string{"env": "prod"} }),
		clusterOf("b", "c3", func(c *v1alpha1.TalosCluster) { c.Status.KubernetesVersion = "v1.36.1" }),
		machineOf("a", "c1-cp-1", "c1", v1alpha1.ControlPlaneRole, func(m *v1alpha1.TalosMachine) { m.Status.TalosVersion = "v1.14.0" }),
		machineOf("a", "c1-w-1", "c1", v1alpha1.WorkerRole, func(m *v1alpha1.TalosMachine) {
			m.Spec.Address = "10.0.0.7"
			m.Spec.Approval = v1alpha1.ApprovalPending
		}),
		machineOf("b", "c3-w-1", "c3", v1alpha1.WorkerRole, func(m *v1alpha1.TalosMachine) { m.Labels = map[string]string{"rack": "r1"} }),
	}
}

func TestListClusters(t *testing.T) {
	for name, row := range map[string]struct {
		request *pb.ListClustersRequest
		found   string
	}{
		"all, by name":      {&pb.ListClustersRequest{}, "c1 c2 c3"},
		"namespace":         {&pb.ListClustersRequest{Filter: &pb.ClusterFilter{Namespaces: []string{"a"}}}, "c1 c2"},
		"label":             {&pb.ListClustersRequest{Filter: &pb.ClusterFilter{LabelSelector: "env=prod"}}, "c2"},
		"attention":         {&pb.ListClustersRequest{Filter: &pb.ClusterFilter{MinAttention: pb.Attention_ATTENTION_SOON}}, "c1"},
		"name":              {&pb.ListClustersRequest{Filter: &pb.ClusterFilter{Names: []*pb.Reference{{Namespace: "b", Name: "c3"}}}}, "c3"},
		"text in a version": {&pb.ListClustersRequest{Filter: &pb.ClusterFilter{Text: "V1.14"}}, "c1"},
		"text in a reason":  {&pb.ListClustersRequest{Filter: &pb.ClusterFilter{Text: "approval"}}, "c1"},
		"by attention":      {&pb.ListClustersRequest{OrderBy: "attention desc"}, "c1 c2 c3"},
		"by creation":       {&pb.ListClustersRequest{OrderBy: "create_time"}, "c2 c3 c1"},
		"by Talos":          {&pb.ListClustersRequest{OrderBy: "talos_version desc"}, "c1 c3 c2"},
		"by Kubernetes":     {&pb.ListClustersRequest{OrderBy: "kubernetes_version"}, "c2 c1 c3"},
		"of a page":         {&pb.ListClustersRequest{Page: &pb.Page{Size: 2}}, "c1 c2"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleetWorld(t, someClusters()...)
			answer, err := w.ListClusters(t.Context(), connect.NewRequest(row.request))
			w.g.Expect(err).NotTo(HaveOccurred())
			w.g.Expect(namesOf(answer.Msg.GetClusters())).To(Equal(row.found))
			w.g.Expect(answer.Msg.GetResumeToken()).NotTo(BeEmpty())
		})
	}
	w := newFleetWorld(t, someClusters()...)
	for field, request := range map[string]*pb.ListClustersRequest{
		"order_by": {OrderBy: "kind"}, "filter.min_attention": {Filter: &pb.ClusterFilter{MinAttention: -1}}, "filter.label_selector": {Filter: &pb.ClusterFilter{LabelSelector: "!"}},
		"filter.names[0].namespace": {Filter: &pb.ClusterFilter{Names: []*pb.Reference{{Name: "c1"}}}}, "page.size": {Page: &pb.Page{Size: 2000}},
	} {
		_, err := w.ListClusters(t.Context(), connect.NewRequest(request))
		w.expectCode(err, connect.CodeInvalidArgument, field)
	}
	w.rights.deny("talosclusters a")
	answer, err := w.ListClusters(t.Context(), connect.NewRequest(&pb.ListClustersRequest{}))
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(namesOf(answer.Msg.GetClusters())).To(Equal("c3"))
}

func TestGetCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFleetWorld(t, someClusters()...)
		get := func(name string) (*pb.GetClusterResponse, error) {
			answer, err := w.GetCluster(t.Context(), connect.NewRequest(&pb.GetClusterRequest{Ref: &pb.Reference{Namespace: "a", Name: name}}))
			if err != nil {
				return nil, err
			}
			return answer.Msg, nil
		}
		answer, err := get("c1")
		w.g.Expect(err).NotTo(HaveOccurred())
		w.g.Expect(answer.GetCluster().GetRef().GetName()).To(Equal("c1"))
		w.g.Expect(namesOf(answer.GetMachines())).To(Equal("c1-cp-1 c1-w-1"))
		_, err = get("c9")
		w.expectCode(err, connect.CodeNotFound, `there is no cluster "c9" in namespace "a"`, "ichor cluster list")
		w.rights.deny("talosmachines a")
		answer, err = get("c1")
		w.g.Expect(err).NotTo(HaveOccurred())
		w.g.Expect(answer.GetMachines()).To(BeEmpty(), "machines are a resource of their own")
		w.rights.deny("talosclusters a/c1")
		_, err = get("c1")
		w.expectCode(err, connect.CodePermissionDenied)
	})
}

// Who may not read operations does not read of them in a cluster, nor finds it by them.
func TestOperationsThatMayNotBeRead(t *testing.T) {
	w := newFleetWorld(t, clusterOf("a", "c1"), opOf("a", "up", "c1", stands("StepFailed", "the disk is full; then")))
	lists := func(filter *pb.ClusterFilter) []*pb.Cluster {
		answer, err := w.ListClusters(t.Context(), connect.NewRequest(&pb.ListClustersRequest{Filter: filter}))
		w.g.Expect(err).NotTo(HaveOccurred())
		return answer.Msg.GetClusters()
	}
	urgent := &pb.ClusterFilter{MinAttention: pb.Attention_ATTENTION_FAILED}
	shown := lists(urgent)[0]
	w.g.Expect(shown.GetOperations()).To(HaveLen(1))
	w.g.Expect(shown.GetAttentionReason()).To(ContainSubstring("disk"))

	w.rights.deny("talosoperations a")
	w.g.Expect(lists(urgent)).To(BeEmpty())
	w.g.Expect(lists(&pb.ClusterFilter{Text: "disk"})).To(BeEmpty())
	answer, err := w.GetCluster(t.Context(), connect.NewRequest(&pb.GetClusterRequest{Ref: &pb.Reference{Namespace: "a", Name: "c1"}}))
	w.g.Expect(err).NotTo(HaveOccurred())
	for _, hidden := range []*pb.Cluster{lists(nil)[0], answer.Msg.GetCluster()} {
		w.g.Expect(hidden.GetOperations()).To(BeEmpty())
		w.g.Expect(hidden.GetAttention()).To(Equal(pb.Attention_ATTENTION_UNSPECIFIED))
		w.g.Expect(hidden.GetAttentionReason()).To(BeEmpty())
	}
	w.g.Expect(shown.GetOperations()).To(HaveLen(1), "what was given out does not change")

	w.rights.deny()
	w.fleet.Apply(clusterOf("a", "c1", expires), opOf("a", "up", "c1", stands("ClusterLockHeld", "it is held; then")))
	w.rights.deny("talosoperations a")
	w.g.Expect(lists(nil)[0].GetAttention()).To(Equal(pb.Attention_ATTENTION_SOON), "that is the cluster's own")
}

func TestListMachines(t *testing.T) {
	for name, row := range map[string]struct {
		request *pb.ListMachinesRequest
		found   string
	}{
		"all":            {&pb.ListMachinesRequest{}, "c1-cp-1 c1-w-1 c3-w-1"},
		"of a cluster":   {&pb.ListMachinesRequest{Clusters: []*pb.Reference{{Namespace: "a", Name: "c1"}}}, "c1-cp-1 c1-w-1"},
		"namespace":      {&pb.ListMachinesRequest{Namespaces: []string{"b"}}, "c3-w-1"},
		"label":          {&pb.ListMachinesRequest{LabelSelector: "rack=r1"}, "c3-w-1"},
		"name of a Node": {&pb.ListMachinesRequest{Text: "node-c1-W"}, "c1-w-1"},
		"address":        {&pb.ListMachinesRequest{Text: "10.0.0"}, "c1-w-1"},
		"by role":        {&pb.ListMachinesRequest{OrderBy: "role desc"}, "c1-w-1 c3-w-1 c1-cp-1"},
		"by cluster":     {&pb.ListMachinesRequest{OrderBy: "cluster desc"}, "c3-w-1 c1-w-1 c1-cp-1"},
		"by attention":   {&pb.ListMachinesRequest{OrderBy: "attention desc"}, "c1-w-1 c1-cp-1 c3-w-1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleetWorld(t, someClusters()...)
			answer, err := w.ListMachines(t.Context(), connect.NewRequest(row.request))
			w.g.Expect(err).NotTo(HaveOccurred())
			w.g.Expect(namesOf(answer.Msg.GetMachines())).To(Equal(row.found))
		})
	}
	w := newFleetWorld(t, someClusters()...)
	for field, request := range map[string]*pb.ListMachinesRequest{
		"order_by": {OrderBy: "phase"}, "label_selector": {LabelSelector: "!"}, "clusters[0].namespace": {Clusters: []*pb.Reference{{Name: "c1"}}}, "namespaces": {Namespaces: []string{""}}, "page.size": {Page: &pb.Page{Size: 2000}},
	} {
		_, err := w.ListMachines(t.Context(), connect.NewRequest(request))
		w.expectCode(err, connect.CodeInvalidArgument, field)
	}
	w.rights.deny("talosmachines a")
	_, err := w.ListMachines(t.Context(), connect.NewRequest(&pb.ListMachinesRequest{Clusters: []*pb.Reference{{Namespace: "a", Name: "c1"}}}))
	w.expectCode(err, connect.CodePermissionDenied)
	first, err := w.ListMachines(t.Context(), connect.NewRequest(&pb.ListMachinesRequest{Page: &pb.Page{Size: 1}}))
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(first.Msg.GetTotalSize()).To(BeEquivalentTo(1))
	w.g.Expect(first.Msg.GetNextPageToken()).To(BeEmpty())
}
