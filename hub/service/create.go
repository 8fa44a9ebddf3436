// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"
	authorizationv1 "k8s.io/api/authorization/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/hub/fleet/render"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

const (
	clusterLabel = clusterv1.ClusterNameLabel

	// finishTime bounds what is still written once a call has written something, whether its caller waits or not.
	finishTime = 30 * time.Second

	// Verbs beside those of Kubernetes.
	startVerb    = "start"
	overrideVerb = "override"
)

// CreateOperation implements the OperationService.
func (s *Server) CreateOperation(ctx context.Context, request *connect.Request[pb.CreateOperationRequest]) (*connect.Response[pb.CreateOperationResponse], error) {
	made, err := s.createOperation(ctx, request.Msg)
	if err != nil {
		return nil, problem(err)
	}
	return connect.NewResponse(made), nil
}

func (s *Server) createOperation(ctx context.Context, request *pb.CreateOperationRequest) (*pb.CreateOperationResponse, error) {
	order, err := s.orderOf(request.GetOrder())
	if err != nil {
		return nil, err
	}
	options := CreateOptions{IdempotencyKey: request.GetIdempotencyKey(), ValidateOnly: request.GetValidateOnly()}
	if expected := request.GetExpectedTarget(); expected != nil {
		target, err := targetOf("expected_target", expected, order.Spec.Kind, planners[order.Spec.Kind])
		if err != nil {
			return nil, err
		}
		if target != (v1alpha1.OperationTarget{}) { // Some clients send a message where others send none.
			options.Expected = &target
		}
	}
	service, err := s.writer(ctx)
	if err != nil {
		return nil, err
	}
	start, err := service.Plan(ctx, order)
	if err != nil {
		return nil, err
	}
	created, err := service.Create(ctx, start, options)
	if err != nil {
		return nil, err
	}
	return created.message(), nil
}

// CreateOptions are how an operation is started.
type CreateOptions struct {
	// Expected is the target that somebody saw in a plan; nil takes what the plan says now.
	Expected *v1alpha1.OperationTarget

	// IdempotencyKey makes the same call twice one operation; empty starts another one.
	IdempotencyKey string

	// ValidateOnly refuses what would be refused, and writes nothing.
	ValidateOnly bool
}

// Created is what became of a start.
type Created struct {
	// Operation is the operation; nil if there was nothing to do.
	Operation *v1alpha1.TalosOperation

	// Existed says that an earlier call with the same key had created it.
	Existed bool

	// Wrote are the fields of the cluster's spec that were written.
	Wrote []string
}

func (c Created) message() *pb.CreateOperationResponse {
	message := &pb.CreateOperationResponse{Existed: c.Existed, WroteSpec: len(c.Wrote) > 0, NothingToDo: c.Operation == nil}
	if c.Operation != nil {
		message.Operation = render.Operation(c.Operation)
	}
	return message
}

// Create starts what was planned: the spec of the target first, then the operation. Whatever speaks against it is said before anything is
// written; if the second write fails, the error says what was done, and doing it again finishes it.
func (s *Service) Create(ctx context.Context, start *Start, options CreateOptions) (Created, error) {
	if err := checkKey(options.IdempotencyKey); err != nil {
		return Created{}, err
	}
	if err := s.mayStart(ctx, start.Order.Cluster.Namespace, start.Spec, len(start.Spec.Overrides) > 0); err != nil {
		return Created{}, err
	}
	if err := s.mayRequest(ctx, start); err != nil {
		return Created{}, err
	}
	if existing, err := start.existing(options); existing != nil || err != nil {
		return Created{Operation: existing, Existed: existing != nil}, err
	}
	if refusals := slices.Concat(start.unexpected(options.Expected), start.Refusals); len(refusals) > 0 {
		return Created{}, &RefusedError{Refusals: refusals}
	}
	if start.AtTarget() {
		return Created{}, nil
	}
	return s.begin(ctx, start, options)
}

// begin makes both writes, after a try of the second one: who may not create an operation changes nothing.
func (s *Service) begin(ctx context.Context, start *Start, options CreateOptions) (Created, error) {
	op := start.operation(s.User, options.IdempotencyKey)
	dry := op.DeepCopy()
	switch err := s.Client.Create(ctx, dry, client.DryRunAll); {
	case apierrors.IsAlreadyExists(err) && options.IdempotencyKey != "":
		return s.meanwhile(ctx, op, start, options)
	case err != nil:
		return Created{}, fmt.Errorf("the operation would not be accepted, nothing was changed: %w", err)
	}
	wrote, err := s.declare(ctx, start, options.ValidateOnly)
	if err != nil {
		return Created{}, err
	}
	asked, err := s.request(ctx, start, options.ValidateOnly)
	switch {
	case err != nil:
		return Created{}, err
	case options.ValidateOnly:
		return Created{Operation: dry, Wrote: wrote}, nil
	}
	// The spec is written: whoever waits for the answer may go, but the operation must come.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
	defer cancel()
	switch err := s.Client.Create(ctx, op); {
	case err == nil:
		return Created{Operation: op, Wrote: wrote}, nil
	case apierrors.IsAlreadyExists(err) && options.IdempotencyKey != "":
		created, err := s.meanwhile(ctx, op, start, options)
		created.Wrote = wrote
		return created, partly(start, wrote, asked, err)
	default:
		return Created{}, partly(start, wrote, asked, fmt.Errorf("creating the operation: %w", err))
	}
}

// partly says how far a start came that wrote the spec and no more.
func partly(start *Start, wrote []string, asked bool, err error) error {
	if err == nil || len(wrote) == 0 && !asked {
		return err
	}
	done := fmt.Sprintf("of %s, %s now", changeOf(start.declares(), start.Plan.Target).name(), commas(wrote))
	if asked {
		done = fmt.Sprintf("TalosMachine %s asks to be removed now (spec.removal)", start.Spec.Node.Machine)
	}
	return &PartlyDoneError{
		Done:    done,
		Missing: "no operation was created",
		Finish:  "repeat the request, or run: " + start.Command(),
		Cause:   err,
	}
}

// mayStart asks whether the user may start, or steer, what can take a cluster down, and bypass gates.
func (s *Service) mayStart(ctx context.Context, namespace string, spec v1alpha1.TalosOperationSpec, overrides bool) error {
	if verb := spec.StartSubresource(); verb != "" { // Of kinds of a newer hub, too.
		if err := s.may(ctx, namespace, startVerb, verb); err != nil {
			return err
		}
	}
	if !overrides {
		return nil
	}
	return s.may(ctx, namespace, overrideVerb, "")
}

// may asks for a verb on operations. A Service without Rights leaves it to the management API.
func (s *Service) may(ctx context.Context, namespace, verb, subresource string) error {
	if s.Rights == nil {
		return nil
	}
	return s.Rights.May(ctx, authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: verb, Group: v1alpha1.GroupVersion.Group, Resource: operationsResource, Subresource: subresource,
	})
}

// mayWrite asks for a verb of Kubernetes on an object of the hub. It is asked first, so that nobody is told "nothing to change" who may change
// nothing, and the audit says "done" of nobody who may not.
func (s *Service) mayWrite(ctx context.Context, verb, resource string, object client.Object) error {
	if s.Rights == nil {
		return nil
	}
	return s.Rights.May(ctx, authorizationv1.ResourceAttributes{
		Namespace: object.GetNamespace(), Name: object.GetName(), Verb: verb, Group: v1alpha1.GroupVersion.Group, Resource: resource,
	})
}

// unexpected refuses a target that is not what somebody saw.
func (s *Start) unexpected(expected *v1alpha1.OperationTarget) []plan.Refusal {
	if expected == nil || planners[s.Spec.Kind].Narrow(*expected) == s.Plan.Target {
		return nil
	}
	return []plan.Refusal{{
		Gate: v1alpha1.TargetExpectedGate,
		Message: fmt.Sprintf("cluster %s would be brought to %s, and the request expects %s",
			s.Spec.ClusterName, describe(s.Plan.Target), describe(*expected)),
		Help: "look at the plan again: " + s.Command() + " --dry-run",
	}}
}

// existing is the operation that an earlier call with the same key made.
func (s *Start) existing(options CreateOptions) (*v1alpha1.TalosOperation, error) {
	if options.IdempotencyKey == "" {
		return nil, nil
	}
	for i := range s.operations {
		if op := &s.operations[i]; op.Labels[v1alpha1.IdempotencyKeyLabel] == options.IdempotencyKey {
			return op, s.sameOrder(op, options)
		}
	}
	return nil, nil
}

// meanwhile is the operation that another call with the same key made since the plan.
func (s *Service) meanwhile(ctx context.Context, op *v1alpha1.TalosOperation, start *Start, options CreateOptions) (Created, error) {
	existing, err := s.Operation(ctx, client.ObjectKeyFromObject(op))
	if err != nil {
		return Created{}, err
	}
	return Created{Operation: existing, Existed: true}, start.sameOrder(existing, options)
}

// sameOrder refuses a key that stands for another order.
func (s *Start) sameOrder(op *v1alpha1.TalosOperation, options CreateOptions) error {
	before, now := ordered(op.Spec), ordered(s.Spec)
	expected := v1alpha1.OperationTarget{}
	if op.Spec.ExpectedTarget != nil {
		expected = *op.Spec.ExpectedTarget
	}
	asked := s.Order.Target // What the spec asks for by now is nobody's order.
	if options.Expected != nil {
		asked = over(planners[s.Spec.Kind].Narrow(*options.Expected), asked)
	}
	if apiequality.Semantic.DeepEqual(before, now) && over(expected, asked) == expected {
		return nil
	}
	return &ExistsError{
		What: fmt.Sprintf("idempotency_key %q stands for operation %s (%s) already, and the request is for %s",
			options.IdempotencyKey, op.Name, describeOrder(op.Spec, expected), describeOrder(s.Spec, s.Plan.Target)),
		Help: "use a key of its own for each order",
	}
}

// ordered is what an operation was ordered to do, without its target, and without what no order has.
func ordered(spec v1alpha1.TalosOperationSpec) v1alpha1.TalosOperationSpec {
	spec.Paused, spec.TTLSecondsAfterFinished, spec.ExpectedTarget = nil, nil, nil
	return spec
}

// checkKey says whether a key can name an operation.
func checkKey(key string) error {
	if key == "" || len(validation.IsDNS1123Label(key)) == 0 {
		return nil
	}
	return &InvalidError{Field: "idempotency_key", Value: key, Allowed: "1 to 63 lower-case letters, digits and dashes, no dash first or last"}
}

// hashOf makes a part of a name of a key.
func hashOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:5])
}
