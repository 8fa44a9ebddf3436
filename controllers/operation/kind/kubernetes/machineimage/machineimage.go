// SPDX-License-Identifier: Apache-2.0

// Package machineimage reads and changes the images of Kubernetes' components in a machine config.
//
// It works on the documents as they are written, whichever form they have: what it does not know stays as it is.
package machineimage

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/siderolabs/talos/pkg/machinery/config/types/k8s"
	"go.yaml.in/yaml/v4"
)

// Component is a component of Kubernetes whose image a machine config names.
type Component string

// The components, named as their images are.
const (
	APIServer         Component = "kube-apiserver"
	ControllerManager Component = "kube-controller-manager"
	Scheduler         Component = "kube-scheduler"
	Proxy             Component = "kube-proxy"
	Kubelet           Component = "kubelet"
)

// place is where a machine config has a component: in a document of its own, or in the one that has everything.
type place struct {
	kind string
	path []string
}

var places = map[Component]place{
	APIServer:         {k8s.KubeAPIServerConfig, []string{"cluster", "apiServer"}},
	ControllerManager: {k8s.KubeControllerManagerConfig, []string{"cluster", "controllerManager"}},
	Scheduler:         {k8s.KubeSchedulerConfig, []string{"cluster", "scheduler"}},
	Proxy:             {k8s.KubeProxyConfig, []string{"cluster", "proxy"}},
	Kubelet:           {k8s.KubeletConfig, []string{"machine", "kubelet"}},
}

// Keys of the documents.
const (
	kindKey     = "kind"
	imageKey    = "image"
	disabledKey = "disabled"
	enabledKey  = "enabled"
)

// switches are where the form with one document switches components off that have no key for that where their image is.
var switches = map[Component][]string{
	ControllerManager: {"machine", "controlPlane", "controllerManager"},
	Scheduler:         {"machine", "controlPlane", "scheduler"},
}

// Setting is what a machine config says of a component.
type Setting struct {
	// Image is the image; empty where the config leaves it to Talos.
	Image string

	// Off says that the component is switched off.
	Off bool
}

// Read says what a machine config says of a component.
func Read(config []byte, of Component) (Setting, error) {
	documents, err := parse(config)
	if err != nil {
		return Setting{}, err
	}
	at, own := find(documents, of)
	if at == nil {
		return Setting{}, nil
	}
	setting := Setting{Image: text(at, imageKey), Off: text(at, disabledKey) == "true" || (own && text(at, enabledKey) == "false")}
	if way := switches[of]; way != nil && !own {
		setting.Off = text(lookUp(old(documents), way), disabledKey) == "true"
	}
	return setting, nil
}

// Set returns a machine config that names another image for a component, in the form that it has already, and nothing else.
func Set(config []byte, of Component, image string) ([]byte, error) {
	documents, err := parse(config)
	if err != nil {
		return nil, err
	}
	at, _ := find(documents, of)
	if at == nil {
		root := old(documents)
		if root == nil {
			return nil, fmt.Errorf("the machine config has no document %s, and none of kind v1alpha1 that could name the image of %s", places[of].kind, of)
		}
		at = ensure(root, places[of].path)
	}
	put(at, imageKey, image)
	return encode(documents)
}

// parse reads all documents.
func parse(config []byte) ([]*yaml.Node, error) {
	var documents []*yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(config))
	for {
		document := &yaml.Node{}
		switch err := decoder.Decode(document); {
		case errors.Is(err, io.EOF):
			return documents, nil
		case err != nil:
			return nil, fmt.Errorf("reading the machine config: %w", err)
		}
		if len(document.Content) > 0 && document.Content[0].Kind == yaml.MappingNode {
			documents = append(documents, document)
		}
	}
}

func encode(documents []*yaml.Node) ([]byte, error) {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(indent)
	for _, document := range documents {
		if err := encoder.Encode(document); err != nil {
			return nil, fmt.Errorf("writing the machine config: %w", err)
		}
	}
	if err := encoder.Close(); err != nil {
		return nil, fmt.Errorf("writing the machine config: %w", err)
	}
	return out.Bytes(), nil
}

// indent is that of Talos.
const indent = 4

// find is the mapping about a component, and says whether that is a document of its own; nil if there is none.
func find(documents []*yaml.Node, of Component) (at *yaml.Node, own bool) {
	for _, document := range documents {
		if root := document.Content[0]; text(root, kindKey) == places[of].kind {
			return root, true
		}
	}
	return lookUp(old(documents), places[of].path), false
}

// old is the document that has everything in the form of old; nil if there is none. It has no kind.
func old(documents []*yaml.Node) *yaml.Node {
	for _, document := range documents {
		if root := document.Content[0]; value(root, kindKey) == nil {
			return root
		}
	}
	return nil
}

// lookUp is the mapping at a path; nil if there is none.
func lookUp(root *yaml.Node, path []string) *yaml.Node {
	for _, key := range path {
		if root = value(root, key); root == nil || root.Kind != yaml.MappingNode {
			return nil
		}
	}
	return root
}

// value is what a mapping has under a key; nil if it has nothing.
func value(mapping *yaml.Node, key string) *yaml.Node {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

func text(mapping *yaml.Node, key string) string {
	if found := value(mapping, key); found != nil && found.Kind == yaml.ScalarNode {
		return found.Value
	}
	return ""
}

// ensure is the mapping at a path, made where there is none.
func ensure(root *yaml.Node, path []string) *yaml.Node {
	for _, key := range path {
		next := value(root, key)
		switch {
		case next == nil:
			next = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
			root.Content = append(root.Content, scalar(key), next)
		case next.Kind != yaml.MappingNode: // Written and left empty.
			*next = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", HeadComment: next.HeadComment, LineComment: next.LineComment}
		}
		next.Style &^= yaml.FlowStyle
		root = next
	}
	return root
}

func put(mapping *yaml.Node, key, to string) {
	if found := value(mapping, key); found != nil {
		found.Kind, found.Tag, found.Value, found.Style, found.Content = yaml.ScalarNode, "!!str", to, 0, nil
		return
	}
	mapping.Content = append(mapping.Content, scalar(key), scalar(to))
	mapping.Style &^= yaml.FlowStyle
}

func scalar(of string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: of} }
