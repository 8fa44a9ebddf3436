// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ImagePull is how Talos before 1.13 pulls.
func (s *server) ImagePull(ctx context.Context, request *machineapi.ImagePullRequest) (*machineapi.ImagePullResponse, error) {
	s.note(ctx, "ImagePull "+request.GetReference()+" "+request.GetNamespace().String())
	return &machineapi.ImagePullResponse{Messages: []*machineapi.ImagePull{{}}}, s.refuses
}

func TestKubernetes(t *testing.T) {
	g := NewWithT(t)
	s, c := serve(t)
	reader := &connection{client: c}
	seen, err := reader.Kubernetes(t.Context(), "10.0.0.1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(seen).To(Equal(Kubernetes{}), "a machine that has rendered nothing yet runs nothing")

	pod := k8s.NewStaticPod(k8s.NamespaceName, k8s.SchedulerID)
	pod.TypedSpec().Pod = map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"talos.dev/config-version": "3"}},
		"spec": map[string]any{"containers": []any{map[string]any{
			"image": "registry.k8s.io/kube-scheduler:v1.35.2", "command": []any{"/usr/local/bin/kube-scheduler", "--v=2"},
		}}},
	}
	kubelet := k8s.NewKubeletSpec(k8s.NamespaceName, k8s.KubeletID)
	kubelet.TypedSpec().Image, kubelet.TypedSpec().Args = "ghcr.io/siderolabs/kubelet:v1.35.2", []string{"--v=2"}
	kubelet.TypedSpec().Config = map[string]any{"featureGates": map[string]any{"B": true, "A": false}}
	manifest := k8s.NewManifest(k8s.ControlPlaneNamespaceName, "10-kube-proxy")
	manifest.TypedSpec().Items = []k8s.SingleManifest{{Object: map[string]any{"kind": "DaemonSet"}}}
	s.create(t, pod, kubelet, manifest)
	seen, err = reader.Kubernetes(t.Context(), "10.0.0.1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(seen).To(Equal(Kubernetes{
		Components: map[string]Component{"kube-scheduler": {
			Image: "registry.k8s.io/kube-scheduler:v1.35.2", ConfigVersion: "3", Args: []string{"/usr/local/bin/kube-scheduler", "--v=2"},
		}},
		Kubelet: Component{Image: "ghcr.io/siderolabs/kubelet:v1.35.2", Args: []string{"--v=2", "--feature-gates=A=false,B=true"}},
	}))
	manifests, err := reader.Manifests(t.Context(), "10.0.0.1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(manifests).To(Equal([]map[string]any{{"kind": "DaemonSet"}}))
}

// Images go where the machine looks for them; a machine that has no service for images is told by the call that it knows.
func TestPullKubernetesImage(t *testing.T) {
	g := NewWithT(t)
	s, c := serve(t)
	writer := &connection{client: c, guard: allowed}
	g.Expect(writer.PullKubernetesImage(t.Context(), "10.0.0.1", "r/kubelet:v1", SystemImages)).To(Succeed())
	g.Expect(writer.PullKubernetesImage(t.Context(), "10.0.0.1", "r/api:v1", PodImages)).To(Succeed())
	g.Expect(s.calls).To(Equal([]string{"Pull r/kubelet:v1 NS_SYSTEM", "Pull r/api:v1 NS_CRI"}))

	s, c = serve(t)
	s.pullError = status.Error(codes.Unimplemented, "unknown service machine.ImageService")
	writer = &connection{client: c, guard: allowed}
	g.Expect(writer.PullKubernetesImage(t.Context(), "10.0.0.1", "r/api:v1", PodImages)).To(Succeed())
	g.Expect(s.calls[1:]).To(Equal([]string{"ImagePull r/api:v1 NS_CRI"}))

	s, c = serve(t)
	s.pullError = status.Error(codes.NotFound, "no such image")
	writer = &connection{client: c, guard: allowed}
	err := writer.PullKubernetesImage(t.Context(), "10.0.0.1", "r/api:v1", PodImages)
	g.Expect(err).To(MatchError(ContainSubstring("pulling r/api:v1 at 10.0.0.1: rpc error: code = NotFound desc = no such image")))
	g.Expect(Classify(err)).To(BeEquivalentTo("Permanent"))
}
