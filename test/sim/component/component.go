// SPDX-License-Identifier: Apache-2.0

// Package component says which parts of Kubernetes a machine config asks a machine to run, in which version and with which
// arguments. It reads both forms of the config and knows nothing of a machine's state.
package component

import (
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
)

// Names of the parts.
const (
	APIServer         = k8s.APIServerID
	ControllerManager = k8s.ControllerManagerID
	Scheduler         = k8s.SchedulerID
	Kubelet           = k8s.KubeletID
	Proxy             = "kube-proxy"
)

// StaticPods are the parts that Talos runs as static pods of a control plane, in the order in which they start.
var StaticPods = []string{APIServer, ControllerManager, Scheduler}

// Part is one part of Kubernetes as a config asks for it.
type Part struct {
	// Name is that of the part, such as "kube-apiserver".
	Name string
	// Image is the reference as the config has it.
	Image string
	// Args are the arguments without the command.
	Args []string
	// Version is that of the image; empty when the reference does not tell.
	Version string
}

// Equal says whether two parts need no restart to become each other.
func (p Part) Equal(other Part) bool {
	return p.Name == other.Name && p.Image == other.Image && slices.Equal(p.Args, other.Args)
}

// Command is the command line.
func (p Part) Command() []string {
	return append([]string{"/usr/local/bin/" + p.Name}, p.Args...)
}

// variants are endings of a kubelet image's tag that are no part of the version.
var variants = []string{"-fat", "-slim"}

// Version reads the version from an image reference, or returns nothing for one by digest alone.
func Version(image string) string {
	image, _, _ = strings.Cut(image, "@")
	_, tag, found := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	if !found {
		return ""
	}
	for _, variant := range variants {
		tag = strings.TrimSuffix(tag, variant)
	}
	return tag
}
