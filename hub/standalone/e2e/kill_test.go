// SPDX-License-Identifier: Apache-2.0

//go:build unix

package e2e

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// TestKillLosesNothing kills processes while objects are being written: whatever the API acknowledged must be
// there afterwards.
func TestKillLosesNothing(t *testing.T) {
	for _, test := range []struct {
		name          string
		child, parent bool
	}{
		{name: "child", child: true},
		{name: "parent", parent: true},
		{name: "both", child: true, parent: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := startHub(t, t.TempDir())
			child := h.childPID()
			w := startWriter(t, h.admin())
			NewWithT(t).Eventually(w.count, 10*time.Second).Should(BeNumerically(">", 50))
			if test.parent {
				h.signal(h.cmd.Process.Pid, syscall.SIGKILL)
			}
			if test.child {
				h.signal(child, syscall.SIGKILL)
			}
			expectGone(t, child)
			acknowledged := w.stop()
			if test.parent {
				h.waitEnd()
				h = startHub(t, h.dir) // At once: no pause for the dead to settle.
			}
			expectObjects(t, h.admin(), acknowledged)
		})
	}
}

// TestClientsWaitForARestartOfTheChild shows that a client needs to know nothing of it.
func TestClientsWaitForARestartOfTheChild(t *testing.T) {
	g := NewWithT(t)
	h := startHub(t, t.TempDir())
	child := h.childPID()
	h.signal(child, syscall.SIGKILL)
	expectGone(t, child)
	g.Eventually(func() error {
		_, err := h.admin().CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceDefault, metav1.GetOptions{})
		return err
	}, 30*time.Second, 50*time.Millisecond).Should(Succeed())
	g.Expect(h.childPID()).NotTo(Equal(child))
	g.Expect(h.output.String()).To(ContainSubstring("restarting"))
}

// writer creates ConfigMaps one after the other until the API fails.
type writer struct {
	cancel  context.CancelFunc
	created chan []string // Holds the names so far, always.
	done    chan struct{}
}

func startWriter(t *testing.T, client kubernetes.Interface) *writer {
	ctx, cancel := context.WithCancel(t.Context())
	w := &writer{cancel: cancel, created: make(chan []string, 1), done: make(chan struct{})}
	w.created <- nil
	go w.run(ctx, client)
	return w
}

func (w *writer) run(ctx context.Context, client kubernetes.Interface) {
	defer close(w.done)
	for n := 0; ; n++ {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("object-%d", n)}}
		if _, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return
		}
		w.created <- append(<-w.created, object.Name)
	}
}

func (w *writer) count() int {
	names := <-w.created
	w.created <- names
	return len(names)
}

// stop returns the names of what was acknowledged.
func (w *writer) stop() []string {
	w.cancel()
	<-w.done
	return <-w.created
}

func expectObjects(t *testing.T, client kubernetes.Interface, names []string) {
	t.Helper()
	g := NewWithT(t)
	var list *corev1.ConfigMapList
	g.Eventually(func() (err error) {
		list, err = client.CoreV1().ConfigMaps(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		return err
	}, 30*time.Second, 50*time.Millisecond).Should(Succeed())
	found := map[string]bool{}
	for _, object := range list.Items {
		found[object.Name] = true
	}
	for _, name := range names {
		g.Expect(found).To(HaveKey(name))
	}
}
