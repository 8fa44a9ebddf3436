// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// table is how kubectl prints a resource. Its zero value prints name and age.
type table struct {
	columns []column
}

// column is one column; wide ones are printed with -o wide only.
type column struct {
	name string
	wide bool
	cell func(Object) any
}

var (
	nameColumn = column{name: "Name", cell: func(o Object) any { return o.GetName() }}
	ageColumn  = column{name: "Age", cell: age}
)

var nodeTable = table{columns: []column{
	nameColumn,
	{name: "Status", cell: nodeStatus},
	{name: "Roles", cell: nodeRoles},
	ageColumn,
	{name: "Version", cell: func(o Object) any { return o.(*corev1.Node).Status.NodeInfo.KubeletVersion }},
	{name: "Internal-IP", wide: true, cell: nodeAddress},
	{name: "External-IP", wide: true, cell: func(Object) any { return "<none>" }},
	{name: "OS-Image", wide: true, cell: func(o Object) any { return o.(*corev1.Node).Status.NodeInfo.OSImage }},
	{name: "Kernel-Version", wide: true, cell: func(o Object) any { return o.(*corev1.Node).Status.NodeInfo.KernelVersion }},
	{name: "Container-Runtime", wide: true, cell: func(o Object) any { return o.(*corev1.Node).Status.NodeInfo.ContainerRuntimeVersion }},
}}

var podTable = table{columns: []column{
	nameColumn,
	{name: "Ready", cell: podReady},
	{name: "Status", cell: podStatus},
	{name: "Restarts", cell: podRestarts},
	ageColumn,
	{name: "IP", wide: true, cell: func(o Object) any { return orNone(o.(*corev1.Pod).Status.PodIP) }},
	{name: "Node", wide: true, cell: func(o Object) any { return orNone(o.(*corev1.Pod).Spec.NodeName) }},
	{name: "Nominated Node", wide: true, cell: func(Object) any { return "<none>" }},
	{name: "Readiness Gates", wide: true, cell: func(Object) any { return "<none>" }},
}}

// of makes the table of some objects.
func (t table) of(r *request, objects []Object, version string) *metav1.Table {
	columns := t.columns
	if columns == nil {
		columns = []column{nameColumn, ageColumn}
	}
	out := &metav1.Table{
		TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: version},
		Rows:     []metav1.TableRow{},
	}
	for _, c := range columns {
		definition := metav1.TableColumnDefinition{Name: c.name, Type: "string"}
		if c.wide {
			definition.Priority = 1
		}
		if c.name == nameColumn.name {
			definition.Format = "name"
		}
		out.ColumnDefinitions = append(out.ColumnDefinitions, definition)
	}
	for _, obj := range objects {
		out.Rows = append(out.Rows, rowOf(r, columns, obj))
	}
	return out
}

func rowOf(r *request, columns []column, obj Object) metav1.TableRow {
	row := metav1.TableRow{}
	for _, c := range columns {
		row.Cells = append(row.Cells, c.cell(obj))
	}
	switch metav1.IncludeObjectPolicy(r.query.Get("includeObject")) {
	case metav1.IncludeNone:
	case metav1.IncludeObject:
		row.Object = runtime.RawExtension{Object: obj}
	default:
		partial := meta.AsPartialObjectMetadata(obj)
		partial.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
		row.Object = runtime.RawExtension{Object: partial}
	}
	return row
}

// age is measured with the real clock: it is for people to read.
func age(o Object) any {
	return duration.HumanDuration(time.Since(o.GetCreationTimestamp().Time))
}

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}

func nodeStatus(o Object) any {
	node := o.(*corev1.Node)
	status := "Unknown"
	for _, c := range node.Status.Conditions {
		switch {
		case c.Type != corev1.NodeReady:
		case c.Status == corev1.ConditionTrue:
			status = "Ready"
		default:
			status = "NotReady"
		}
	}
	if node.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

func nodeRoles(o Object) any {
	const prefix = "node-role.kubernetes.io/"
	var roles []string
	for label := range maps.Keys(o.GetLabels()) {
		if role, ok := strings.CutPrefix(label, prefix); ok {
			roles = append(roles, role)
		}
	}
	slices.Sort(roles)
	return orNone(strings.Join(roles, ","))
}

func nodeAddress(o Object) any {
	for _, a := range o.(*corev1.Node).Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return "<none>"
}

func podReady(o Object) any {
	pod := o.(*corev1.Pod)
	ready := 0
	for _, c := range pod.Status.ContainerStatuses {
		if c.Ready {
			ready++
		}
	}
	return fmt.Sprintf("%d/%d", ready, len(pod.Spec.Containers))
}

func podStatus(o Object) any {
	pod := o.(*corev1.Pod)
	if pod.DeletionTimestamp != nil {
		return "Terminating"
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Waiting != nil && c.State.Waiting.Reason != "" {
			return c.State.Waiting.Reason
		}
	}
	return string(pod.Status.Phase)
}

func podRestarts(o Object) any {
	restarts := int32(0)
	for _, c := range o.(*corev1.Pod).Status.ContainerStatuses {
		restarts += c.RestartCount
	}
	return fmt.Sprint(restarts)
}
