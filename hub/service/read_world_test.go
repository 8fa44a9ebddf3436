// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/fleet"
	"ichor.maesh.dev/hub/hub/scheme"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// fleetWorld is a Server over a fleet that tests change, for a caller whose rights they change.
type fleetWorld struct {
	*Server

	g        *WithT
	t        *testing.T
	fleet    *fleet.Fleet
	rights   *testRights
	caller   auth.Caller
	client   client.Client
	failures []*pb.Failure
}

func newFleetWorld(t *testing.T, objects ...client.Object) *fleetWorld {
	t.Helper()
	w := &fleetWorld{g: NewWithT(t), t: t, fleet: fleet.New(), rights: &testRights{}, caller: auth.Caller{Name: "ada"}}
	w.client = eventClient()
	w.Server = &Server{Backend: w, Now: time.Now, Hub: &pb.GetHubResponse{Name: "here"}}
	w.fleet.MarkSynced()
	w.fleet.Apply(objects...)
	return w
}

// eventClient is a client that finds events by what they are about.
func eventClient(events ...client.Object) client.Client {
	return fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(events...).
		WithIndex(&corev1.Event{}, "involvedObject.uid", func(object client.Object) []string {
			return []string{string(object.(*corev1.Event).InvolvedObject.UID)} //nolint:forcetypeassert // It is an index of Events.
		}).Build()
}

func (w *fleetWorld) Session(context.Context) (*Session, error) {
	return &Session{Caller: w.caller, Client: w.client, Rights: w.rights}, nil
}

func (w *fleetWorld) Fleet(context.Context, ...string) (*fleet.Fleet, []*pb.Failure, error) {
	return w.fleet, w.failures, nil
}

// testRights let everything be read, but for what they deny or do not know: "resource namespace", or "resource namespace/name" of a get.
type testRights struct {
	mu              sync.Mutex
	denied, unknown []string
	asked           int
}

func (r *testRights) deny(what ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.denied = what
}

func (r *testRights) lose(what ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unknown = what
}

func (r *testRights) May(_ context.Context, what authorizationv1.ResourceAttributes) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if what.Verb == "list" {
		r.asked++
		switch place := what.Resource + " " + what.Namespace; {
		case slices.Contains(r.unknown, place):
			return connect.NewError(connect.CodeUnavailable, errors.New("nobody knows"))
		case slices.Contains(r.denied, place):
			return connect.NewError(connect.CodePermissionDenied, errors.New("denied"))
		}
	}
	if slices.Contains(r.denied, fmt.Sprintf("%s %s/%s", what.Resource, what.Namespace, what.Name)) {
		return connect.NewError(connect.CodePermissionDenied, errors.New("denied"))
	}
	return nil
}

func (r *testRights) Readable(_ context.Context, resource string, namespaces []string) (readable map[string]bool, failures []*pb.Failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	readable = map[string]bool{"of another question": true}
	for _, namespace := range namespaces {
		what := resource + " " + namespace
		switch {
		case slices.Contains(r.unknown, what):
			failures = append(failures, &pb.Failure{Scope: &pb.Reference{Namespace: namespace}, Code: "unavailable", Message: "nobody knows"})
		case !slices.Contains(r.denied, what):
			readable[namespace] = true
		}
	}
	return readable, failures
}

func in(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(now), UID: "uid-of-" + "x"}
}

// opOf is an operation; changes change it.
func opOf(namespace, name, cluster string, changes ...func(*v1alpha1.TalosOperation)) *v1alpha1.TalosOperation {
	op := &v1alpha1.TalosOperation{ObjectMeta: in(namespace, name), Spec: v1alpha1.TalosOperationSpec{ClusterName: cluster, Kind: v1alpha1.TalosKind}}
	for _, change := range changes {
		change(op)
	}
	return op
}

// stands makes an operation stand for a reason.
func stands(reason, why string) func(*v1alpha1.TalosOperation) {
	return func(op *v1alpha1.TalosOperation) {
		op.Status.Phase = v1alpha1.OperationPaused
		op.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PausedCondition, Status: metav1.ConditionTrue, Reason: reason, Message: why}}
	}
}

func labelled(key, value string) func(*v1alpha1.TalosOperation) {
	return func(op *v1alpha1.TalosOperation) { op.Labels = map[string]string{key: value} }
}

func created(at time.Duration) func(*v1alpha1.TalosOperation) {
	return func(op *v1alpha1.TalosOperation) { op.CreationTimestamp = metav1.NewTime(now.Add(at)) }
}

func clusterOf(namespace, name string, changes ...func(*v1alpha1.TalosCluster)) *v1alpha1.TalosCluster {
	c := &v1alpha1.TalosCluster{ObjectMeta: in(namespace, name)}
	c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.AvailableCondition, Status: metav1.ConditionTrue}}
	for _, change := range changes {
		change(c)
	}
	return c
}

// expires makes the credentials of a cluster end soon.
func expires(c *v1alpha1.TalosCluster) {
	c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{
		Type: v1alpha1.CredentialsValidCondition, Status: metav1.ConditionTrue, Reason: v1alpha1.CredentialsExpiringReason, Message: "they end in May",
	})
}

func machineOf(namespace, name, cluster string, role v1alpha1.MachineRole, changes ...func(*v1alpha1.TalosMachine)) *v1alpha1.TalosMachine {
	m := &v1alpha1.TalosMachine{ObjectMeta: in(namespace, name)}
	m.Spec = v1alpha1.TalosMachineSpec{ClusterName: cluster, Role: role, Approval: v1alpha1.Approved}
	m.Status = v1alpha1.TalosMachineStatus{NodeName: "Node-" + name, TalosVersion: "v1.13.9", KubeletVersion: "v1.35.2"}
	for _, change := range changes {
		change(m)
	}
	return m
}

// namesOf are the names of messages, in order.
func namesOf[M referred](messages []M) string {
	var names []string
	for _, message := range messages {
		names = append(names, message.GetRef().GetName())
	}
	return strings.Join(names, " ")
}

// sortedKeys are the rows of a table, in order.
func sortedKeys[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }

// haveCode matches an error of Connect.
func (w *fleetWorld) expectCode(err error, code connect.Code, says ...string) {
	w.t.Helper()
	w.g.Expect(err).To(HaveOccurred())
	w.g.Expect(connect.CodeOf(err)).To(Equal(code), err.Error())
	for _, part := range says {
		w.g.Expect(err.Error()).To(ContainSubstring(part))
	}
}
