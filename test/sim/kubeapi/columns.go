// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

var namespaceTable = table{columns: []column{
	nameColumn,
	{name: "Status", cell: func(o Object) any { return string(o.(*corev1.Namespace).Status.Phase) }},
	ageColumn,
}}

var configMapTable = table{columns: []column{
	nameColumn,
	{name: "Data", cell: func(o Object) any {
		m := o.(*corev1.ConfigMap)
		return fmt.Sprint(len(m.Data) + len(m.BinaryData))
	}},
	ageColumn,
}}

var eventTable = table{columns: []column{
	{name: "Last Seen", cell: func(o Object) any { return lastSeen(o.(*corev1.Event)) }},
	{name: "Type", cell: func(o Object) any { return o.(*corev1.Event).Type }},
	{name: "Reason", cell: func(o Object) any { return o.(*corev1.Event).Reason }},
	{name: "Object", cell: func(o Object) any {
		about := o.(*corev1.Event).InvolvedObject
		return strings.ToLower(about.Kind) + "/" + about.Name
	}},
	{name: "Message", cell: func(o Object) any { return strings.TrimSpace(o.(*corev1.Event).Message) }},
	{name: "Name", wide: true, cell: func(o Object) any { return o.GetName() }},
}}

// lastSeen is when the event happened last, by whichever of its fields its author has filled in.
func lastSeen(e *corev1.Event) string {
	at := e.LastTimestamp.Time
	switch {
	case e.Series != nil:
		at = e.Series.LastObservedTime.Time
	case at.IsZero():
		at = e.EventTime.Time
	}
	if at.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(at))
}

var deploymentTable = table{columns: []column{
	nameColumn,
	{name: "Ready", cell: func(o Object) any {
		d := o.(*appsv1.Deployment)
		return fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, ptr.Deref(d.Spec.Replicas, 1))
	}},
	{name: "Up-to-date", cell: func(o Object) any { return fmt.Sprint(o.(*appsv1.Deployment).Status.UpdatedReplicas) }},
	{name: "Available", cell: func(o Object) any { return fmt.Sprint(o.(*appsv1.Deployment).Status.AvailableReplicas) }},
	ageColumn,
}}

var replicaSetTable = table{columns: []column{
	nameColumn,
	{name: "Desired", cell: func(o Object) any { return fmt.Sprint(ptr.Deref(o.(*appsv1.ReplicaSet).Spec.Replicas, 1)) }},
	{name: "Current", cell: func(o Object) any { return fmt.Sprint(o.(*appsv1.ReplicaSet).Status.Replicas) }},
	{name: "Ready", cell: func(o Object) any { return fmt.Sprint(o.(*appsv1.ReplicaSet).Status.ReadyReplicas) }},
	ageColumn,
}}

var daemonSetTable = table{columns: []column{
	nameColumn,
	{name: "Desired", cell: func(o Object) any { return fmt.Sprint(o.(*appsv1.DaemonSet).Status.DesiredNumberScheduled) }},
	{name: "Current", cell: func(o Object) any { return fmt.Sprint(o.(*appsv1.DaemonSet).Status.CurrentNumberScheduled) }},
	{name: "Ready", cell: func(o Object) any { return fmt.Sprint(o.(*appsv1.DaemonSet).Status.NumberReady) }},
	{name: "Up-to-date", cell: func(o Object) any { return fmt.Sprint(o.(*appsv1.DaemonSet).Status.UpdatedNumberScheduled) }},
	{name: "Available", cell: func(o Object) any { return fmt.Sprint(o.(*appsv1.DaemonSet).Status.NumberAvailable) }},
	{name: "Node Selector", cell: func(Object) any { return "<none>" }},
	ageColumn,
}}

// nameTable is the table of objects of which nobody wants to see more.
var nameTable = table{columns: []column{nameColumn, ageColumn}}

var leaseTable = table{columns: []column{
	nameColumn,
	{name: "Holder", cell: func(o Object) any { return ptr.Deref(o.(*coordinationv1.Lease).Spec.HolderIdentity, "") }},
	ageColumn,
}}

var budgetTable = table{columns: []column{
	nameColumn,
	{name: "Min Available", cell: func(o Object) any { return orNA(o.(*policyv1.PodDisruptionBudget).Spec.MinAvailable) }},
	{name: "Max Unavailable", cell: func(o Object) any { return orNA(o.(*policyv1.PodDisruptionBudget).Spec.MaxUnavailable) }},
	{name: "Allowed Disruptions", cell: func(o Object) any {
		return fmt.Sprint(o.(*policyv1.PodDisruptionBudget).Status.DisruptionsAllowed)
	}},
	ageColumn,
}}

func orNA(n *intstr.IntOrString) string {
	if n == nil {
		return "N/A"
	}
	return n.String()
}
