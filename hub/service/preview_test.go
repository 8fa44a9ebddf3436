// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"strings"
	"testing"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/targets"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// recordedPreviews answers previews, and notes for which target.
type recordedPreviews struct {
	asked  []v1alpha1.OperationTarget
	answer []Manifest
	err    error
}

func (r *recordedPreviews) Preview(_ context.Context, facts targets.Facts, _ v1alpha1.TalosOperationSpec, target v1alpha1.OperationTarget) ([]Manifest, error) {
	if facts.Cluster.Name != "c1" {
		return nil, errors.New("another cluster")
	}
	r.asked = append(r.asked, target)
	return r.answer, r.err
}

// nobody may start anything.
type nobody struct{ asked []string }

func (n *nobody) May(_ context.Context, what authorizationv1.ResourceAttributes) error {
	n.asked = append(n.asked, what.Verb+" "+what.Resource+"/"+what.Subresource)
	return connect.NewError(connect.CodePermissionDenied, errors.New("may not"))
}

func (n *nobody) Readable(context.Context, string, []string) (map[string]bool, []*pb.Failure) {
	return nil, nil
}

// without is a backend whose sessions have rights.
type without struct {
	*world

	rights Rights
}

func (w without) Session(ctx context.Context) (*Session, error) {
	session, err := w.world.Session(ctx)
	session.Rights = w.rights
	return session, err
}

// A plan shows what the cluster says would change; and asks only for who may start that, where nothing speaks against it.
func TestPreview(t *testing.T) {
	order := func(kind pb.OperationKind, target *pb.OperationTarget) *connect.Request[pb.PlanOperationRequest] {
		return connect.NewRequest(&pb.PlanOperationRequest{Order: &pb.OperationOrder{
			Kind: kind, Target: target, Cluster: &pb.Reference{Namespace: "default", Name: "c1"},
		}})
	}
	kubernetes := order(pb.OperationKind_OPERATION_KIND_KUBERNETES, &pb.OperationTarget{KubernetesVersion: "v1.36.1"})
	target := v1alpha1.OperationTarget{KubernetesVersion: "v1.36.1"}
	long := strings.Repeat("x", mostDiff+1)
	start := func(t *testing.T, answer recordedPreviews) (*world, *recordedPreviews) {
		w := newWorld(t, cluster()...)
		w.server.Previewer = &answer
		return w, &answer
	}

	t.Run("who may start", func(t *testing.T) {
		w, previews := start(t, recordedPreviews{answer: []Manifest{{Object: "DaemonSet a/b", Action: "Configured", Diff: long}, {Object: "DaemonSet a/c", Action: "Skipped", Owner: "Helm"}}})
		response, err := w.server.PlanOperation(w.ctx, kubernetes)
		w.g.Expect(err).NotTo(HaveOccurred())
		w.g.Expect(previews.asked).To(Equal([]v1alpha1.OperationTarget{target}))
		manifests := response.Msg.GetPlan().GetManifests()
		w.g.Expect(manifests).To(HaveLen(2))
		w.g.Expect(manifests[0].GetDiff()).To(Equal(long[:mostDiff] + "\n…\n"))
		w.g.Expect(manifests[1].GetOwner()).To(Equal("Helm"))
		w.g.Expect(w.writes).To(BeEmpty())
	})
	t.Run("a cluster that does not answer", func(t *testing.T) {
		w, _ := start(t, recordedPreviews{err: errors.New("no answer")})
		response, err := w.server.PlanOperation(w.ctx, kubernetes)
		w.g.Expect(err).NotTo(HaveOccurred(), "it is planned all the same")
		w.g.Expect(response.Msg.GetPlan().GetManifestsTrouble()).To(Equal("no answer"))
	})
	t.Run("who may only read", func(t *testing.T) {
		w, previews := start(t, recordedPreviews{})
		rights := &nobody{}
		w.server.Backend = without{w, rights}
		_, err := w.server.PlanOperation(w.ctx, kubernetes)
		w.g.Expect(err).NotTo(HaveOccurred())
		w.g.Expect(previews.asked).To(BeEmpty())
		w.g.Expect(rights.asked).To(ContainElement("start talosoperations/kubernetes"))
	})
	t.Run("what is refused, and another kind", func(t *testing.T) {
		w, previews := start(t, recordedPreviews{})
		for _, other := range []*connect.Request[pb.PlanOperationRequest]{
			order(pb.OperationKind_OPERATION_KIND_KUBERNETES, &pb.OperationTarget{KubernetesVersion: "v1.99.0"}),
			order(pb.OperationKind_OPERATION_KIND_TALOS, &pb.OperationTarget{TalosVersion: "v1.14.1"}),
		} {
			_, err := w.server.PlanOperation(w.ctx, other)
			w.g.Expect(err).NotTo(HaveOccurred())
		}
		w.g.Expect(previews.asked).To(BeEmpty())
	})
}
