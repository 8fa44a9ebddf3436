// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

const cordonedBy = "ichor.maesh.dev/cordoned-by"

func node(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w-1", ResourceVersion: "1"}}
	for _, c := range change {
		c(n)
	}
	return n
}

func unschedulable(n *corev1.Node) { n.Spec.Unschedulable = true }

func by(owner string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		n.Annotations = map[string]string{cordonedBy: owner}
	}
}

// api is a fake API that holds patches to the resourceVersion that they name, as the real one does. between is called before each
// patch arrives.
func api(n *corev1.Node, between func(*fake.Clientset)) (*connection, *fake.Clientset) {
	clients := fake.NewClientset(n)
	clients.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if between != nil {
			between(clients)
		}
		patch := struct {
			Metadata struct{ ResourceVersion string }
		}{}
		if err := json.Unmarshal(action.(clienttesting.PatchAction).GetPatch(), &patch); err != nil {
			return true, nil, err
		}
		now, err := clients.Tracker().Get(corev1.SchemeGroupVersion.WithResource("nodes"), "", "w-1")
		if err != nil {
			return true, nil, err
		}
		if now.(*corev1.Node).ResourceVersion != patch.Metadata.ResourceVersion {
			return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), "w-1", errors.New("changed"))
		}
		return false, nil, nil
	})
	return &connection{clients: clients, guard: func(context.Context) error { return nil }}, clients
}

// replace changes the Node once, and its resourceVersion.
func replace(n *corev1.Node) func(*fake.Clientset) {
	done := false
	return func(clients *fake.Clientset) {
		if done {
			return
		}
		done = true
		n.ResourceVersion = "2"
		if err := clients.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), n, ""); err != nil {
			panic(err)
		}
	}
}

func patches(clients *fake.Clientset) int {
	count := 0
	for _, action := range clients.Actions() {
		if action.GetVerb() == "patch" {
			count++
		}
	}
	return count
}

// Case D3: who cordoned a Node is recorded with the cordon, and only they take it off.
func TestCaseD3ForeignCordonStays(t *testing.T) {
	cordon := func(c *connection) error { return c.Cordon(context.Background(), "w-1", "default/op-1") }
	uncordon := func(c *connection) error { return c.Uncordon(context.Background(), "w-1", "default/op-1") }
	for name, row := range map[string]struct {
		before  *corev1.Node
		between *corev1.Node
		do      func(*connection) error
		// owner and unschedulable are what is there afterwards.
		unschedulable bool
		owner         string
		patches       int
	}{
		"cordon":                           {node(), nil, cordon, true, "default/op-1", 1},
		"cordon twice":                     {node(by("default/op-1")), nil, cordon, true, "default/op-1", 0},
		"cordon what an admin cordoned":    {node(unschedulable), nil, cordon, true, "", 0},
		"cordon what another cordoned":     {node(by("default/op-0")), nil, cordon, true, "default/op-0", 0},
		"cordon, and an admin is faster":   {node(), node(unschedulable), cordon, true, "", 1},
		"cordon, and a label changes":      {node(), node(func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }), cordon, true, "default/op-1", 2},
		"uncordon":                         {node(by("default/op-1")), nil, uncordon, false, "", 1},
		"uncordon twice":                   {node(), nil, uncordon, false, "", 0},
		"uncordon an admin's":              {node(unschedulable), nil, uncordon, true, "", 0},
		"uncordon another's":               {node(by("default/op-0")), nil, uncordon, true, "default/op-0", 0},
		"uncordon, and another takes over": {node(by("default/op-1")), node(by("default/op-2")), uncordon, true, "default/op-2", 1},
		"uncordon, and a label changes":    {node(by("default/op-1")), node(by("default/op-1"), func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }), uncordon, false, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var between func(*fake.Clientset)
			if row.between != nil {
				between = replace(row.between)
			}
			c, clients := api(row.before, between)
			g.Expect(row.do(c)).To(Succeed())
			now, err := clients.CoreV1().Nodes().Get(t.Context(), "w-1", metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(now.Spec.Unschedulable).To(Equal(row.unschedulable))
			g.Expect(now.Annotations[cordonedBy]).To(Equal(row.owner))
			g.Expect(patches(clients)).To(Equal(row.patches))
		})
	}
}

// Somebody who uncordons a Node takes the annotation along in effect: a Node that is schedulable is cordoned by nobody.
func TestUncordonedByHand(t *testing.T) {
	g := NewWithT(t)
	cordoned := node(by("default/op-1"))
	g.Expect(nodeFrom(cordoned).CordonedBy).To(Equal("default/op-1"))
	cordoned.Spec.Unschedulable = false
	g.Expect(nodeFrom(cordoned).CordonedBy).To(BeEmpty())
}

func TestCordonTellsWhatWentWrong(t *testing.T) {
	g := NewWithT(t)
	c, clients := api(node(), nil)
	err := c.Cordon(t.Context(), "w-9", "default/op-1")
	g.Expect(err).To(MatchError(HavePrefix("changing whether node w-9 is schedulable: ")))
	g.Expect(apierrors.IsNotFound(err)).To(BeTrue())
	g.Expect(Classify(err)).To(BeEquivalentTo("Permanent"))

	clients.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), "w-1", errors.New("changed"))
	})
	g.Expect(apierrors.IsConflict(c.Cordon(t.Context(), "w-1", "default/op-1"))).To(BeTrue(), "it does not try for ever")
}

func TestNodeFrom(t *testing.T) {
	g := NewWithT(t)
	full := node(by("default/op-1"), func(n *corev1.Node) {
		n.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
		n.Status = corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{SystemUUID: "u1", BootID: "b1", KubeletVersion: "v1.35.2"},
			Addresses: []corev1.NodeAddress{
				{Type: "Hostname", Address: "w-1"}, {Type: "InternalIP", Address: "10.0.1.1"}, {Type: "ExternalIP", Address: "192.0.2.1"},
			},
			Conditions: []corev1.NodeCondition{{Type: "MemoryPressure", Status: "False"}, {Type: "Ready", Status: "True"}},
		}
	})
	want := Node{
		Name: "w-1", UUID: "u1", BootID: "b1", KubeletVersion: "v1.35.2", Addresses: []string{"10.0.1.1", "192.0.2.1"},
		Ready: true, Unschedulable: true, ControlPlane: true, CordonedBy: "default/op-1",
	}
	c := &connection{clients: fake.NewClientset(full)}
	one, err := c.Node(t.Context(), "w-1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(one).To(HaveValue(Equal(want)))
	all, err := c.Nodes(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(all).To(Equal([]Node{want}))
	none, err := c.Node(t.Context(), "w-9")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(none).To(BeNil())

	for _, status := range []corev1.ConditionStatus{"False", "Unknown"} {
		full.Status.Conditions[1].Status = status
		g.Expect(nodeFrom(full).Ready).To(BeFalse())
	}
	g.Expect(nodeFrom(node())).To(Equal(Node{Name: "w-1"}))
}

// An annotation is written only onto the Node that was read, and only where it is to be another.
func TestAnnotate(t *testing.T) {
	const key = "ichor.maesh.dev/storage-evacuated-by"
	with := func(value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Annotations = map[string]string{key: value, "other": "x"} }
	}
	set := func(now string) string {
		if now == "" {
			return "default/op-1"
		}
		return now
	}
	unset := func(now string) string {
		if now == "default/op-1" {
			return ""
		}
		return now
	}
	for name, row := range map[string]struct {
		node    *corev1.Node
		between *corev1.Node
		change  func(string) string
		want    string
		patches int
	}{
		"set":                       {node(), nil, set, "default/op-1", 1},
		"set already":               {node(with("default/op-0")), nil, set, "default/op-0", 0},
		"set by another in between": {node(), node(with("default/op-0")), set, "default/op-0", 1},
		"remove":                    {node(with("default/op-1")), nil, unset, "", 1},
		"nothing to remove":         {node(), nil, unset, "", 0},
		"somebody else's":           {node(with("default/op-0")), nil, unset, "default/op-0", 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var between func(*fake.Clientset)
			if row.between != nil {
				between = replace(row.between)
			}
			c, clients := api(row.node, between)
			g.Expect(c.Annotate(t.Context(), "w-1", key, row.change)).To(Succeed())
			now, err := c.Node(t.Context(), "w-1")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(now.Storage[key]).To(Equal(row.want))
			g.Expect(now.Storage).NotTo(HaveKey("other"))
			g.Expect(patches(clients)).To(Equal(row.patches))
		})
	}
	g := NewWithT(t)
	c, _ := api(node(), nil)
	g.Expect(c.Annotate(t.Context(), "w-9", key, set)).To(MatchError(ContainSubstring("annotating node w-9 with " + key)))
}
