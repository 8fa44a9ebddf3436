// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func secretOf(data map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s", "resourceVersion": "7"}, "data": data, "status": map[string]any{"x": "y"},
	}}
}

// What a Secret holds never gets into a diff; that it changes does.
func TestSecretsAreMasked(t *testing.T) {
	g := NewWithT(t)
	changed, err := diff(secretOf(map[string]any{"a": "c2VjcmV0", "b": "c2FtZQ=="}), secretOf(map[string]any{"a": "b3RoZXI=", "b": "c2FtZQ=="}))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(changed).To(And(ContainSubstring("-  a: (masked)\n+  a: (masked, another)"), Not(ContainSubstring("c2VjcmV0")), Not(ContainSubstring("b3RoZXI="))))
	g.Expect(diff(secretOf(map[string]any{"a": "c2VjcmV0"}), secretOf(map[string]any{"a": "c2VjcmV0"}))).To(BeEmpty())
	created, err := diff(nil, secretOf(map[string]any{"a": "c2VjcmV0"}))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(created).To(And(ContainSubstring("+  a: (masked)"), Not(ContainSubstring("resourceVersion")), Not(ContainSubstring("status"))))
}

// The keys are those of the inventory that Talos keeps.
func TestInventoryKeys(t *testing.T) {
	for text, key := range map[string]objectKey{
		"kube-system_coredns_apps_Deployment": {GroupKind: schema.GroupKind{Group: "apps", Kind: "Deployment"}, Namespace: "kube-system", Name: "coredns"},
		"_kube-system__ConfigMap":             {GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Name: "kube-system"},
		"_system__coredns_rbac.authorization.k8s.io_ClusterRole": {
			GroupKind: schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}, Name: "system:coredns",
		},
	} {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(key.String()).To(Equal(text))
			parsed, ok := parseKey(text)
			g.Expect(ok).To(BeTrue())
			g.Expect(parsed).To(Equal(key))
		})
	}
	_, ok := parseKey("what_is_this")
	NewWithT(t).Expect(ok).To(BeFalse())
}

// Case F: what an API server was asked for and is deprecated, by its metrics.
func TestDeprecatedAPIs(t *testing.T) {
	NewWithT(t).Expect(deprecatedAPIs([]byte(`# HELP apiserver_requested_deprecated_apis x
# TYPE apiserver_requested_deprecated_apis gauge
apiserver_requested_deprecated_apis{group="policy",removed_release="1.25",resource="podsecuritypolicies",subresource="",version="v1beta1"} 1
apiserver_requested_deprecated_apis{group="policy",removed_release="1.25",resource="podsecuritypolicies",subresource="status",version="v1beta1"} 1
apiserver_requested_deprecated_apis{group="",removed_release="",resource="componentstatuses",subresource="",version="v1"} 1
apiserver_requested_deprecated_apis{group="x",removed_release="1.36",resource="y",subresource="",version="v1"} 0
apiserver_request_total{group="policy"} 7
`))).To(Equal([]DeprecatedAPI{
		{Version: "v1", Resource: "componentstatuses"}, {Group: "policy", Version: "v1beta1", Resource: "podsecuritypolicies", RemovedIn: "1.25"},
	}))
}

func TestContainerTrouble(t *testing.T) {
	ended := &corev1.ContainerStateTerminated{ExitCode: 1, Message: "unknown flag"}
	for name, row := range map[string]struct {
		status corev1.ContainerStatus
		want   string
	}{
		"it runs":             {corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}, ""},
		"it ran once more":    {corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, LastTerminationState: corev1.ContainerState{Terminated: ended}}, ""},
		"it crashes":          {corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"}}, LastTerminationState: corev1.ContainerState{Terminated: ended}}, "CrashLoopBackOff (exit code 1: unknown flag)"},
		"it cannot be pulled": {corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}}}, "ErrImagePull: not found"},
		"it is created":       {corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}, "ContainerCreating"},
		"it has ended":        {corev1.ContainerStatus{State: corev1.ContainerState{Terminated: ended}}, "exit code 1: unknown flag"},
	} {
		t.Run(name, func(t *testing.T) { NewWithT(t).Expect(containerTrouble(row.status)).To(Equal(row.want)) })
	}
}
