// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
)

// Kubernetes is what a machine is told to run of Kubernetes, as it has understood its config.
type Kubernetes struct {
	// Components are the static pods of a control plane, by name such as kube-apiserver; empty for a worker.
	Components map[string]Component

	// Kubelet is the kubelet.
	Kubelet Component
}

// Component is one component of Kubernetes on one machine.
type Component struct {
	// Image is the image that it runs.
	Image string

	// ConfigVersion is the version of the config that its pod was made from. Talos puts it on the pod as well, so that the two can be compared.
	ConfigVersion string

	// Args are the arguments of its command line. The feature gates that a kubelet finds in its config file are among them.
	Args []string
}

// ImageStore is where a machine keeps an image that it pulls.
type ImageStore string

const (
	// SystemImages are those of Talos' own services, such as the kubelet.
	SystemImages ImageStore = "system"

	// PodImages are those of pods, static ones included.
	PodImages ImageStore = "pods"
)

// imageStores are the namespaces of containerd that the stores are.
var imageStores = map[ImageStore]common.ContainerdNamespace{
	SystemImages: common.ContainerdNamespace_NS_SYSTEM, PodImages: common.ContainerdNamespace_NS_CRI,
}

// staticPods are the components that run as static pods.
var staticPods = []string{k8s.APIServerID, k8s.ControllerManagerID, k8s.SchedulerID}

func (c *connection) Kubernetes(ctx context.Context, address string) (Kubernetes, error) {
	ctx = client.WithNode(ctx, address)
	found := Kubernetes{}
	for _, name := range staticPods {
		pod, err := get[*k8s.StaticPod](ctx, c, k8s.NamespaceName, k8s.StaticPodType, name)
		if err != nil {
			return Kubernetes{}, fmt.Errorf("machine at %s: %w", address, err)
		}
		if pod == nil {
			continue
		}
		component, err := componentOf(pod.TypedSpec().Pod)
		if err != nil {
			return Kubernetes{}, fmt.Errorf("machine at %s: static pod %s: %w", address, name, err)
		}
		if found.Components == nil {
			found.Components = map[string]Component{}
		}
		found.Components[name] = component
	}
	kubelet, err := get[*k8s.KubeletSpec](ctx, c, k8s.NamespaceName, k8s.KubeletSpecType, k8s.KubeletID)
	if err != nil {
		return Kubernetes{}, fmt.Errorf("machine at %s: %w", address, err)
	}
	if kubelet != nil {
		found.Kubelet = kubeletOf(kubelet.TypedSpec())
	}
	return found, nil
}

// componentOf reads a static pod as Talos renders it.
func componentOf(rendered map[string]any) (Component, error) {
	data, err := json.Marshal(rendered)
	if err != nil {
		return Component{}, err
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(data, pod); err != nil {
		return Component{}, err
	}
	if len(pod.Spec.Containers) == 0 {
		return Component{}, errors.New("it has no container")
	}
	container := pod.Spec.Containers[0]
	return Component{
		Image: container.Image, ConfigVersion: pod.Annotations[constants.AnnotationStaticPodConfigVersion],
		Args: slices.Concat(container.Command, container.Args),
	}, nil
}

// featureGatesKey is where the config file of a kubelet has its feature gates.
const featureGatesKey = "featureGates"

func kubeletOf(spec *k8s.KubeletSpecSpec) Component {
	component := Component{Image: spec.Image, Args: slices.Clone(spec.Args)}
	gates, _ := spec.Config[featureGatesKey].(map[string]any)
	if len(gates) == 0 {
		return component
	}
	var set []string
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		set = append(set, fmt.Sprintf("%s=%v", name, gates[name]))
	}
	component.Args = append(component.Args, "--feature-gates="+strings.Join(set, ","))
	return component
}

func (c *connection) Manifests(ctx context.Context, address string) ([]map[string]any, error) {
	list, err := safe.StateList[*k8s.Manifest](client.WithNode(ctx, address), c.client.COSI,
		resource.NewMetadata(k8s.ControlPlaneNamespaceName, k8s.ManifestType, "", resource.VersionUndefined))
	if err != nil {
		return nil, fmt.Errorf("machine at %s: reading the bootstrap manifests: %w", address, err)
	}
	var objects []map[string]any
	for manifest := range list.All() {
		for _, item := range manifest.TypedSpec().Items {
			objects = append(objects, item.Object)
		}
	}
	return objects, nil
}

// PullKubernetesImage pulls by the call of Talos before 1.13 where a machine knows no other.
func (c *connection) PullKubernetesImage(ctx context.Context, address, image string, store ImageStore) error {
	ctx = c.guarded(ctx, address)
	stream, err := c.client.ImageClient.Pull(ctx, &machineapi.ImageServicePullRequest{
		Containerd: &common.ContainerdInstance{Driver: common.ContainerDriver_CRI, Namespace: imageStores[store]}, ImageRef: image,
	})
	if err == nil {
		err = drainStream(stream.Recv, func(*machineapi.ImageServicePullResponse) {})
	}
	if client.StatusCode(err) == codes.Unimplemented {
		err = c.client.ImagePull(ctx, imageStores[store], image) //nolint:staticcheck // Talos before 1.13 has nothing else.
	}
	if err != nil {
		return fmt.Errorf("pulling %s at %s: %w", image, address, err)
	}
	return nil
}
