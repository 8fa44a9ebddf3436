// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/test/sim"
)

// The kinds of the stand-in provider. They satisfy Cluster API's contracts, and nobody reconciles them: what a provider would find out
// is written when they are made.
const (
	infrastructureGroup = "infrastructure.cluster.x-k8s.io"
	controlPlaneGroup   = "controlplane.cluster.x-k8s.io"

	clusterKind      = "StandInCluster"
	machineKind      = "StandInMachine"
	controlPlaneKind = "StandInControlPlane"

	// clusterctlLabel on a definition makes "clusterctl move" take its objects along. clusterctl puts it there when it installs one.
	clusterctlLabel = "clusterctl.cluster.x-k8s.io"
)

// standIns are the definitions of the stand-in provider.
func standIns() []*apiextensionsv1.CustomResourceDefinition {
	return []*apiextensionsv1.CustomResourceDefinition{
		standIn(infrastructureGroup, clusterKind), standIn(infrastructureGroup, machineKind), standIn(controlPlaneGroup, controlPlaneKind),
	}
}

func standIn(group, kind string) *apiextensionsv1.CustomResourceDefinition {
	singular := strings.ToLower(kind)
	names := apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Singular: singular, Plural: singular + "s"}
	anything := &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
		Type: "object", XPreserveUnknownFields: ptr.To(true),
	}}
	return &apiextensionsv1.CustomResourceDefinition{
		TypeMeta: metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{
			Name: names.Plural + "." + group, Labels: map[string]string{clusterv1.GroupVersion.String(): "v1", clusterctlLabel: ""},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Names: names, Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: anything}},
		},
	}
}

// Provider makes clusters as Cluster API's providers leave them behind: running, with credentials, and a Machine for every machine.
type Provider struct {
	// Client writes the management API.
	Client client.Client

	// Namespace is where the objects go.
	Namespace string
}

// Cluster makes the objects of a simulated cluster, but for the Machines.
func (p Provider) Cluster(ctx context.Context, cluster *sim.Cluster) error {
	name := cluster.Name()
	capi := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name}}
	capi.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrastructureGroup, Kind: clusterKind, Name: name}
	capi.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: controlPlaneGroup, Kind: controlPlaneKind, Name: name}
	endpoint, err := endpointOf(cluster)
	if err != nil {
		return err
	}
	labels := map[string]string{clusterv1.ClusterNameLabel: name}
	for _, object := range []client.Object{
		p.standIn(infrastructureGroup, clusterKind, name, map[string]any{
			"spec":   map[string]any{"controlPlaneEndpoint": endpoint},
			"status": map[string]any{"initialization": map[string]any{"provisioned": true}},
		}),
		p.standIn(controlPlaneGroup, controlPlaneKind, name, map[string]any{
			"spec": map[string]any{"version": sim.DefaultKubernetesVersion},
			"status": map[string]any{
				"version": sim.DefaultKubernetesVersion, "initialization": map[string]any{"controlPlaneInitialized": true},
				"conditions": []any{map[string]any{
					"type": "Available", "status": "True", "reason": "Available", "lastTransitionTime": metav1.Now().UTC().Format(time.RFC3339),
				}},
			},
		}),
		capi,
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name + "-kubeconfig", Labels: labels},
			Type:       clusterv1.ClusterSecretType, Data: map[string][]byte{"value": cluster.Kubeconfig()},
		},
	} {
		if err := p.Client.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %s %s: %w", object.GetObjectKind().GroupVersionKind().Kind, object.GetName(), err)
		}
	}
	talosconfig := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: name + "-talosconfig", Labels: labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(capi, clusterv1.GroupVersion.WithKind(clusterv1.ClusterKind))},
		},
		Data: map[string][]byte{"talosconfig": cluster.Talosconfig()},
	}
	if err := p.Client.Create(ctx, talosconfig); err != nil {
		return fmt.Errorf("creating Secret %s: %w", talosconfig.Name, err)
	}
	return nil
}

func endpointOf(cluster *sim.Cluster) (map[string]any, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(cluster.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of %s: %w", cluster.Name(), err)
	}
	host, port, _ := strings.Cut(strings.TrimPrefix(config.Host, "https://"), ":")
	var number int64
	if _, err := fmt.Sscan(port, &number); err != nil {
		return nil, fmt.Errorf("reading the port of %s: %w", config.Host, err)
	}
	return map[string]any{"host": host, "port": number}, nil
}

func (p Provider) standIn(group, kind, name string, content map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: content}
	object.SetAPIVersion(group + "/v1")
	object.SetKind(kind)
	object.SetNamespace(p.Namespace)
	object.SetName(name)
	return object
}

// Machine makes a Machine of a simulated node, and gives its Node the provider ID, as a cloud controller would.
func (p Provider) Machine(ctx context.Context, cluster *sim.Cluster, node *sim.Node) error {
	id := "standin:///" + cluster.Name() + "/" + node.Name()
	if err := p.identifyNode(ctx, cluster, node.Name(), id); err != nil {
		return err
	}
	name := p.MachineName(cluster, node)
	infrastructure := p.standIn(infrastructureGroup, machineKind, name, map[string]any{
		"spec": map[string]any{"providerID": id},
		"status": map[string]any{
			"initialization": map[string]any{"provisioned": true},
			"addresses":      []any{map[string]any{"type": "InternalIP", "address": node.Address()}},
		},
	})
	if err := p.Client.Create(ctx, infrastructure); err != nil {
		return fmt.Errorf("creating %s %s: %w", machineKind, name, err)
	}
	machine := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster.Name()},
			Annotations: map[string]string{clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation: ""}, // Simulated clusters know no volumes.
		},
		Spec: clusterv1.MachineSpec{
			ClusterName: cluster.Name(), Version: sim.DefaultKubernetesVersion,
			Bootstrap:         clusterv1.Bootstrap{DataSecretName: ptr.To(name + "-bootstrap-data")},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrastructureGroup, Kind: machineKind, Name: name},
		},
	}
	if node.ControlPlane() {
		if err := p.ownByControlPlane(ctx, machine); err != nil {
			return err
		}
	}
	if err := p.Client.Create(ctx, machine); err != nil {
		return fmt.Errorf("creating Machine %s: %w", name, err)
	}
	return nil
}

// ownByControlPlane makes a Machine one of the control plane's. Cluster API leaves it to the control plane to delete these.
func (p Provider) ownByControlPlane(ctx context.Context, machine *clusterv1.Machine) error {
	name := machine.Spec.ClusterName
	owner := p.standIn(controlPlaneGroup, controlPlaneKind, name, map[string]any{})
	if err := p.Client.Get(ctx, client.ObjectKeyFromObject(owner), owner); err != nil {
		return fmt.Errorf("reading %s %s: %w", controlPlaneKind, name, err)
	}
	machine.Labels[clusterv1.MachineControlPlaneLabel] = ""
	machine.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())}
	return nil
}

// MachineName is a name of which nothing but the provider knows how it comes about.
func (p Provider) MachineName(cluster *sim.Cluster, node *sim.Node) string {
	return cluster.Name() + "-" + node.UUID()[:8]
}

func (p Provider) identifyNode(ctx context.Context, cluster *sim.Cluster, node, id string) error {
	config, err := clientcmd.RESTConfigFromKubeConfig(cluster.Kubeconfig())
	if err != nil {
		return fmt.Errorf("reading the kubeconfig of %s: %w", cluster.Name(), err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", cluster.Name(), err)
	}
	found, err := clients.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading node %s: %w", node, err)
	}
	found.Spec.ProviderID = id
	if _, err := clients.CoreV1().Nodes().Update(ctx, found, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("giving node %s its provider ID: %w", node, err)
	}
	return nil
}
