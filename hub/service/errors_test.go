// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ichor.maesh.dev/hub/controllers/operation/plan"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/tracked"
)

// Every error has a code that programs go by, and the words that it had.
func TestProblem(t *testing.T) {
	resource, kind := schema.GroupResource{Group: "ichor.maesh.dev", Resource: "talosclusters"}, schema.GroupKind{Group: "ichor.maesh.dev", Kind: "TalosCluster"}
	about := func(err error) error { return fmt.Errorf("changing it: %w", err) }
	for name, row := range map[string]struct {
		err  error
		code connect.Code
		text string
	}{
		"not found":            {&NotFoundError{What: "there is none", Help: "make one"}, connect.CodeNotFound, "there is none; make one"},
		"invalid":              {&InvalidError{Field: "a.b", Value: "x", Allowed: "y or z"}, connect.CodeInvalidArgument, `a.b "x": y or z`},
		"missing":              {&InvalidError{Field: "a.b", Allowed: "y or z"}, connect.CodeInvalidArgument, "a.b is missing: y or z"},
		"refused":              {&RefusedError{Refusals: []plan.Refusal{{Gate: "Quorum", Message: "two"}}}, connect.CodeFailedPrecondition, "refused: Quorum: two"},
		"state":                {&StateError{What: "it is over", Help: "start another"}, connect.CodeFailedPrecondition, "it is over; start another"},
		"exists":               {&ExistsError{What: "it is there", Help: "choose another name"}, connect.CodeAlreadyExists, "it is there; choose another name"},
		"changed":              {&ChangedError{What: "it was changed"}, connect.CodeAborted, "it was changed: look at it again, and repeat the request"},
		"unopened":             {&UnopenedError{Cause: &net.OpError{Op: "dial", Err: errors.New("refused")}}, connect.CodeFailedPrecondition, "dial: refused; to import it without a look at it: --offline"},
		"credentials":          {about(credentials.ErrInvalid), connect.CodeInvalidArgument, "changing it: invalid"},
		"of Connect":           {about(connect.NewError(connect.CodeUnauthenticated, errors.New("who are you"))), connect.CodeUnauthenticated, ""},
		"canceled":             {about(context.Canceled), connect.CodeCanceled, "changing it: context canceled"},
		"deadline":             {about(context.DeadlineExceeded), connect.CodeDeadlineExceeded, "changing it: context deadline exceeded"},
		"forbidden":            {about(apierrors.NewForbidden(resource, "c1", errors.New("no"))), connect.CodePermissionDenied, `changing it: talosclusters.ichor.maesh.dev "c1" is forbidden: no`},
		"unauthorized":         {apierrors.NewUnauthorized("who"), connect.CodeUnauthenticated, "who"},
		"API: not found":       {apierrors.NewNotFound(resource, "c1"), connect.CodeNotFound, `talosclusters.ichor.maesh.dev "c1" not found`},
		"API: already exists":  {apierrors.NewAlreadyExists(resource, "c1"), connect.CodeAlreadyExists, `talosclusters.ichor.maesh.dev "c1" already exists`},
		"API: conflict":        {apierrors.NewConflict(resource, "c1", errors.New("changed")), connect.CodeAborted, `Operation cannot be fulfilled on talosclusters.ichor.maesh.dev "c1": changed`},
		"API: bad request":     {apierrors.NewBadRequest("what"), connect.CodeInvalidArgument, "what"},
		"API: timeout":         {apierrors.NewTimeoutError("slow", 1), connect.CodeDeadlineExceeded, "Timeout: slow"},
		"API: server timeout":  {apierrors.NewServerTimeout(resource, "get", 1), connect.CodeUnavailable, ""},
		"API: unavailable":     {apierrors.NewServiceUnavailable("away"), connect.CodeUnavailable, "away"},
		"API: busy":            {apierrors.NewTooManyRequests("busy", 1), connect.CodeUnavailable, "busy"},
		"API: broken":          {apierrors.NewInternalError(errors.New("oops")), connect.CodeInternal, ""},
		"network":              {about(&net.OpError{Op: "dial", Err: errors.New("refused")}), connect.CodeUnavailable, "changing it: dial: refused"},
		"anything else":        {errors.New("oops"), connect.CodeInternal, "oops"},
		"partly, and why":      {&PartlyDoneError{Done: "a is done", Missing: "b is not", Finish: "repeat it", Cause: apierrors.NewServiceUnavailable("away")}, connect.CodeUnavailable, "a is done, but b is not: away; to finish it, repeat it"},
		"partly, by Connect":   {&PartlyDoneError{Done: "a", Missing: "b", Finish: "c", Cause: connect.NewError(connect.CodePermissionDenied, errors.New("no"))}, connect.CodePermissionDenied, "a, but b: no; to finish it, c"},
		"API: an invalid spec": {apierrors.NewInvalid(kind, "c1", field.ErrorList{field.Invalid(field.NewPath("spec", "talosVersion"), "x", "must match")}), connect.CodeInvalidArgument, `TalosCluster.ichor.maesh.dev "c1" is invalid: spec.talosVersion: Invalid value: "x": must match`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			made := problem(row.err)
			g.Expect(connect.CodeOf(made)).To(Equal(row.code))
			var answer *connect.Error
			g.Expect(errors.As(made, &answer)).To(BeTrue())
			if row.text != "" {
				g.Expect(answer.Message()).To(Equal(row.text))
			}
		})
	}
	NewWithT(t).Expect(problem(nil)).To(Succeed())
}

// What programs go by is beside the words.
func TestProblemDetails(t *testing.T) {
	g := NewWithT(t)
	refused := &RefusedError{Refusals: []plan.Refusal{{Gate: "Quorum", Message: "two", Help: "add one", Overridable: true}}}
	var answer *connect.Error
	g.Expect(errors.As(problem(&PartlyDoneError{Done: "a", Missing: "b", Finish: "c", Cause: refused}), &answer)).To(BeTrue())
	g.Expect(answer.Details()).To(HaveLen(2))
	first, err := answer.Details()[0].Value()
	g.Expect(err).NotTo(HaveOccurred())
	refusal := first.(*pb.Refusals).GetRefusals()[0]
	g.Expect([]any{refusal.GetGate(), refusal.GetMessage(), refusal.GetHelp(), refusal.GetOverridable()}).To(Equal([]any{"Quorum", "two", "add one", true}))
	second, err := answer.Details()[1].Value()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(second.(*pb.PartlyDone).GetMissing()).To(Equal("b"))
}

func TestTracker(t *testing.T) {
	const argo, kustomize, helm = `Application "a" of Argo CD`, `Kustomization "ns/a" of Flux`, `HelmRelease "ns/a" of Flux`
	for name, row := range map[string]struct {
		labels, annotations map[string]string
		manager             string
		want                string
	}{
		"nobody":                         {},
		"Argo CD, by annotation":         {annotations: map[string]string{"argocd.argoproj.io/tracking-id": "a:ichor.maesh.dev/TalosCluster:default/c1"}, want: argo},
		"an annotation that was copied":  {annotations: map[string]string{"argocd.argoproj.io/tracking-id": "a:ichor.maesh.dev/TalosCluster:default/c2"}},
		"the annotation of another kind": {annotations: map[string]string{"argocd.argoproj.io/tracking-id": "a:cluster.x-k8s.io/Cluster:default/c1"}},
		"an annotation that is none":     {annotations: map[string]string{"argocd.argoproj.io/tracking-id": "a"}},
		"Argo CD, by its own label":      {labels: map[string]string{"argocd.argoproj.io/instance": "a"}, want: argo},
		"the label alone: Helm has it":   {labels: map[string]string{"app.kubernetes.io/instance": "a", "app.kubernetes.io/managed-by": "Helm"}},
		"the label, and who manages it":  {labels: map[string]string{"app.kubernetes.io/instance": "a", "app.kubernetes.io/managed-by": "argocd"}, want: argo},
		"the label, and who applied it":  {labels: map[string]string{"app.kubernetes.io/instance": "a"}, manager: "argocd-controller", want: argo},
		"Flux, a Kustomization":          {labels: map[string]string{"kustomize.toolkit.fluxcd.io/name": "a", "kustomize.toolkit.fluxcd.io/namespace": "ns"}, want: kustomize},
		"Flux, told to leave it alone": {
			labels:      map[string]string{"kustomize.toolkit.fluxcd.io/name": "a", "kustomize.toolkit.fluxcd.io/namespace": "ns"},
			annotations: map[string]string{"kustomize.toolkit.fluxcd.io/reconcile": "disabled"},
		},
		"Flux, a HelmRelease": {labels: map[string]string{"helm.toolkit.fluxcd.io/name": "a", "helm.toolkit.fluxcd.io/namespace": "ns"}, want: helm},
	} {
		t.Run(name, func(t *testing.T) {
			object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "c1", Labels: row.labels, Annotations: row.annotations,
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: row.manager}},
			}}
			NewWithT(t).Expect(tracked.ByGit(object, "TalosCluster")).To(Equal(row.want))
		})
	}
}
