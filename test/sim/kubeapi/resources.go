// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"slices"

	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Resource is one kind that the API serves.
type Resource struct {
	// Group, Version, Plural and Kind name it.
	Group, Version, Plural, Kind string
	// ShortNames are kubectl's abbreviations.
	ShortNames []string
	// Namespaced objects live in namespaces.
	Namespaced bool
	// New and NewList make empty objects.
	New     func() Object
	NewList func() runtime.Object
	// Fields are what field selectors can ask for besides name and namespace.
	Fields func(Object) fields.Set
	// CopyStatus copies the status; nil for kinds without the subresource.
	CopyStatus func(from, to Object)
	// Counted objects count the changes of their spec in metadata.generation.
	Counted bool
	// Managed objects tell who has set which of their fields. Of others that is kept from their first server-side apply on.
	Managed bool
	// Table is what kubectl prints.
	Table table
}

// GroupResource names the resource in errors.
func (r *Resource) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Plural}
}

// GroupVersionKind is the type of the objects.
func (r *Resource) GroupVersionKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
}

// The resources that the simulation itself works with.
var (
	Namespaces = &Resource{
		Version: "v1", Plural: "namespaces", Kind: "Namespace", ShortNames: []string{"ns"},
		New: func() Object { return &corev1.Namespace{} }, NewList: func() runtime.Object { return &corev1.NamespaceList{} },
		Table: namespaceTable,
	}
	Nodes = &Resource{
		Version: "v1", Plural: "nodes", Kind: "Node", ShortNames: []string{"no"},
		New: func() Object { return &corev1.Node{} }, NewList: func() runtime.Object { return &corev1.NodeList{} },
		Fields:     nodeFields,
		CopyStatus: func(from, to Object) { to.(*corev1.Node).Status = from.(*corev1.Node).Status },
		Table:      nodeTable,
	}
	Pods = &Resource{
		Version: "v1", Plural: "pods", Kind: "Pod", ShortNames: []string{"po"}, Namespaced: true,
		New: func() Object { return &corev1.Pod{} }, NewList: func() runtime.Object { return &corev1.PodList{} },
		Fields:     podFields,
		CopyStatus: func(from, to Object) { to.(*corev1.Pod).Status = from.(*corev1.Pod).Status },
		Table:      podTable,
	}
	ConfigMaps = &Resource{
		Version: "v1", Plural: "configmaps", Kind: "ConfigMap", ShortNames: []string{"cm"}, Namespaced: true, Managed: true,
		New: func() Object { return &corev1.ConfigMap{} }, NewList: func() runtime.Object { return &corev1.ConfigMapList{} },
		Table: configMapTable,
	}
	Events = &Resource{
		Version: "v1", Plural: "events", Kind: "Event", ShortNames: []string{"ev"}, Namespaced: true,
		New: func() Object { return &corev1.Event{} }, NewList: func() runtime.Object { return &corev1.EventList{} },
		Fields: eventFields,
		Table:  eventTable,
	}
	Deployments = &Resource{
		Group: "apps", Version: "v1", Plural: "deployments", Kind: "Deployment", ShortNames: []string{"deploy"}, Namespaced: true,
		Counted: true, Managed: true,
		New: func() Object { return &appsv1.Deployment{} }, NewList: func() runtime.Object { return &appsv1.DeploymentList{} },
		CopyStatus: func(from, to Object) { to.(*appsv1.Deployment).Status = from.(*appsv1.Deployment).Status },
		Table:      deploymentTable,
	}
	ReplicaSets = &Resource{
		Group: "apps", Version: "v1", Plural: "replicasets", Kind: "ReplicaSet", ShortNames: []string{"rs"}, Namespaced: true,
		Counted: true,
		New:     func() Object { return &appsv1.ReplicaSet{} }, NewList: func() runtime.Object { return &appsv1.ReplicaSetList{} },
		CopyStatus: func(from, to Object) { to.(*appsv1.ReplicaSet).Status = from.(*appsv1.ReplicaSet).Status },
		Table:      replicaSetTable,
	}
	DaemonSets = &Resource{
		Group: "apps", Version: "v1", Plural: "daemonsets", Kind: "DaemonSet", ShortNames: []string{"ds"}, Namespaced: true,
		Counted: true, Managed: true,
		New: func() Object { return &appsv1.DaemonSet{} }, NewList: func() runtime.Object { return &appsv1.DaemonSetList{} },
		CopyStatus: func(from, to Object) { to.(*appsv1.DaemonSet).Status = from.(*appsv1.DaemonSet).Status },
		Table:      daemonSetTable,
	}
	Secrets = &Resource{
		Version: "v1", Plural: "secrets", Kind: "Secret", Namespaced: true, Managed: true,
		Fields: secretFields,
		New:    func() Object { return &corev1.Secret{} }, NewList: func() runtime.Object { return &corev1.SecretList{} },
		Table: nameTable,
	}
	ServiceAccounts = &Resource{
		Version: "v1", Plural: "serviceaccounts", Kind: "ServiceAccount", ShortNames: []string{"sa"}, Namespaced: true, Managed: true,
		New: func() Object { return &corev1.ServiceAccount{} }, NewList: func() runtime.Object { return &corev1.ServiceAccountList{} },
		Table: nameTable,
	}
	Services = &Resource{
		Version: "v1", Plural: "services", Kind: "Service", ShortNames: []string{"svc"}, Namespaced: true, Managed: true,
		New: func() Object { return &corev1.Service{} }, NewList: func() runtime.Object { return &corev1.ServiceList{} },
		CopyStatus: func(from, to Object) { to.(*corev1.Service).Status = from.(*corev1.Service).Status },
		Table:      nameTable,
	}
	ClusterRoles = &Resource{
		Group: "rbac.authorization.k8s.io", Version: "v1", Plural: "clusterroles", Kind: "ClusterRole", Managed: true,
		New: func() Object { return &rbacv1.ClusterRole{} }, NewList: func() runtime.Object { return &rbacv1.ClusterRoleList{} },
		Table: nameTable,
	}
	ClusterRoleBindings = &Resource{
		Group: "rbac.authorization.k8s.io", Version: "v1", Plural: "clusterrolebindings", Kind: "ClusterRoleBinding", Managed: true,
		New: func() Object { return &rbacv1.ClusterRoleBinding{} }, NewList: func() runtime.Object { return &rbacv1.ClusterRoleBindingList{} },
		Table: nameTable,
	}
	Leases = &Resource{
		Group: "coordination.k8s.io", Version: "v1", Plural: "leases", Kind: "Lease", Namespaced: true,
		New: func() Object { return &coordinationv1.Lease{} }, NewList: func() runtime.Object { return &coordinationv1.LeaseList{} },
		Table: leaseTable,
	}
	VolumeAttachments = &Resource{
		Group: "storage.k8s.io", Version: "v1", Plural: "volumeattachments", Kind: "VolumeAttachment",
		New: func() Object { return &storagev1.VolumeAttachment{} }, NewList: func() runtime.Object { return &storagev1.VolumeAttachmentList{} },
		CopyStatus: func(from, to Object) {
			to.(*storagev1.VolumeAttachment).Status = from.(*storagev1.VolumeAttachment).Status
		},
		Table: nameTable,
	}
	PodDisruptionBudgets = &Resource{
		Group: "policy", Version: "v1", Plural: "poddisruptionbudgets", Kind: "PodDisruptionBudget",
		ShortNames: []string{"pdb"}, Namespaced: true,
		New: func() Object { return &policyv1.PodDisruptionBudget{} }, NewList: func() runtime.Object { return &policyv1.PodDisruptionBudgetList{} },
		CopyStatus: func(from, to Object) {
			to.(*policyv1.PodDisruptionBudget).Status = from.(*policyv1.PodDisruptionBudget).Status
		},
		Table: budgetTable,
	}
)

// resources is the table of all that is served.
var resources = []*Resource{
	Namespaces, Nodes, Pods, ConfigMaps, Secrets, ServiceAccounts, Services, Events, Deployments, ReplicaSets, DaemonSets, Leases,
	PodDisruptionBudgets, ClusterRoles, ClusterRoleBindings, VolumeAttachments,
}

// Resources are all kinds that the API serves.
func Resources() []*Resource { return slices.Clone(resources) }

func findResource(group, version, plural string) *Resource {
	return find(func(r *Resource) bool { return r.Group == group && r.Version == version && r.Plural == plural })
}

// ResourceOf is the resource of a kind of objects, or nil when the API does not serve it.
func ResourceOf(kind schema.GroupVersionKind) *Resource { return resourceOfKind(kind) }

func resourceOfKind(kind schema.GroupVersionKind) *Resource {
	return find(func(r *Resource) bool { return r.GroupVersionKind() == kind })
}

func find(match func(*Resource) bool) *Resource {
	if i := slices.IndexFunc(resources, match); i >= 0 {
		return resources[i]
	}
	return nil
}

// fieldsOf is what field selectors are matched against.
func (r *Resource) fieldsOf(obj Object) fields.Set {
	set := fields.Set{}
	if r.Fields != nil {
		set = r.Fields(obj)
	}
	set["metadata.name"], set["metadata.namespace"] = obj.GetName(), obj.GetNamespace()
	return set
}

func nodeFields(obj Object) fields.Set {
	if obj.(*corev1.Node).Spec.Unschedulable {
		return fields.Set{"spec.unschedulable": "true"}
	}
	return fields.Set{"spec.unschedulable": "false"}
}

func secretFields(obj Object) fields.Set {
	return fields.Set{"type": string(obj.(*corev1.Secret).Type)} //nolint:forcetypeassert // It is called for Secrets alone.
}

func podFields(obj Object) fields.Set {
	pod := obj.(*corev1.Pod)
	return fields.Set{
		"spec.nodeName":      pod.Spec.NodeName,
		"spec.restartPolicy": string(pod.Spec.RestartPolicy),
		"status.phase":       string(pod.Status.Phase),
	}
}

func eventFields(obj Object) fields.Set {
	event := obj.(*corev1.Event)
	return fields.Set{
		"involvedObject.kind":      event.InvolvedObject.Kind,
		"involvedObject.name":      event.InvolvedObject.Name,
		"involvedObject.namespace": event.InvolvedObject.Namespace,
		"involvedObject.uid":       string(event.InvolvedObject.UID),
		"reason":                   event.Reason,
		"type":                     event.Type,
	}
}

func newUID() types.UID { return types.UID(uuid.NewString()) }
