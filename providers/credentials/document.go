// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// expect says why a file is not what it should be, in words that help who took the wrong one. What it lets through is a YAML mapping that
// may be the wanted document.
func expect(wanted string, data []byte) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return errors.New("it is empty")
	}
	var document map[string]any
	if err := yaml.Unmarshal(data, &document); err != nil {
		return fmt.Errorf("it is no YAML mapping: %w", err)
	}
	if kind := documentKind(document); kind != "a "+wanted {
		return fmt.Errorf("it is %s and no %s", kind, wanted)
	}
	return nil
}

const (
	kubeconfigDocument  = "kubeconfig"
	talosconfigDocument = "talosconfig"
)

// documentKind is what a document seems to be.
func documentKind(document map[string]any) string {
	kind, _ := document["kind"].(string)
	_, hasContexts := document["contexts"]
	_, hasContext := document["context"]
	switch {
	case kind == "Config" || hasContexts && (document["clusters"] != nil || document["users"] != nil || document["current-context"] != nil):
		return "a " + kubeconfigDocument
	case kind != "":
		return fmt.Sprintf("a document of kind %q", kind)
	case hasContexts || hasContext:
		return "a " + talosconfigDocument
	case document["machine"] != nil:
		return "a machine config"
	}
	return "another document"
}

// names lists the keys of a map for an error.
func names[V any](m map[string]V) string {
	list := make([]string, 0, len(m))
	for name := range m {
		list = append(list, fmt.Sprintf("%q", name))
	}
	slices.Sort(list)
	return "[" + strings.Join(list, " ") + "]"
}
