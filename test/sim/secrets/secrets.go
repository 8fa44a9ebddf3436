// SPDX-License-Identifier: Apache-2.0

// Package secrets says what Talos makes of the certificates and keys in a machine config: the resources that it takes them to, the
// files that it writes for the parts of Kubernetes and for etcd, and the certificates of its own API. It is pure: whoever uses it
// keeps the files, and decides when they are made anew.
package secrets

import (
	"fmt"
	"maps"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
)

// Validity outlives any simulation and stays below the CAs' ten years.
const Validity = 5 * 365 * 24 * time.Hour

// Node is the machine that a config is in force on.
type Node struct {
	// Name is that of the Node.
	Name string
	// Addresses are the machine's own.
	Addresses []string
	// ControlPlane machines get the files of the control plane.
	ControlPlane bool
	// Shared are addresses of load balancers at which the machine's Talos API answers too.
	Shared []string
}

// Files are what Talos writes for the components of one machine. Nobody changes them once they are made.
type Files struct {
	// Content is that of the files, by their paths on the machine.
	Content map[string][]byte
	// Version is that of the secrets from which the static pods are made; it counts the changes of the KubernetesRoot.
	Version int

	roots *Roots
}

// Render makes the files that a config asks for. What is there already stays as it is unless the config asks for something else:
// certificates are issued anew when their CA or their names have changed, or when half of their time is over.
func Render(c config.Provider, node Node, old *Files) (*Files, error) {
	roots, err := RootsOf(c, node.ControlPlane)
	if err != nil {
		return nil, err
	}
	return RenderFrom(roots, node, old)
}

// RenderFrom is Render for a config that was read already.
func RenderFrom(roots *Roots, node Node, old *Files) (*Files, error) {
	if old == nil {
		old = &Files{}
	}
	r := &renderer{roots: roots, node: node, old: old, files: map[string][]byte{}, now: time.Now()}
	steps := []func() error{r.kubelet}
	if node.ControlPlane {
		steps = append(steps, r.apiServer, r.controllerManager, r.scheduler, r.etcd)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, fmt.Errorf("secrets of %s: %w", node.Name, err)
		}
	}
	return &Files{Content: r.files, Version: r.version(), roots: roots}, nil
}

// renderer is one rendering.
type renderer struct {
	roots *Roots
	node  Node
	old   *Files
	files map[string][]byte
	now   time.Time
}

// version counts the changes of what the static pods are made from. Certificates that are renewed for other reasons do not count.
func (r *renderer) version() int {
	switch {
	case r.roots.Kubernetes == nil:
		return 0
	case r.old.Version == 0:
		return 1
	case r.old.roots.SameKubernetes(r.roots):
		return r.old.Version
	}
	return r.old.Version + 1
}

// Rebooted are the files that outlast a reboot: what is under /var. All others are in memory.
func (f *Files) Rebooted() *Files {
	kept := &Files{Content: map[string][]byte{}}
	if f == nil {
		return kept
	}
	if pem, ok := f.Content[KubeletClient]; ok {
		kept.Content[KubeletClient] = pem
	}
	return kept
}

// with are the same files but for some.
func (f *Files) with(changed map[string][]byte) *Files {
	content := maps.Clone(f.Content)
	maps.Copy(content, changed)
	return &Files{Content: content, Version: f.Version, roots: f.roots}
}
