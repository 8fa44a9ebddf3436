// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"ichor.maesh.dev/hub/providers/installation"
)

// keys are the lists whose elements have names of their own, and the field that names them. All other lists are taken as a whole.
var keys = map[string]string{"containers": "name", "volumes": "name", "ports": "name", "env": "name", "volumeMounts": "mountPath"}

// fill is what the release has of an object, with what is there in its place wherever something is. The arguments of the hub are those that are
// there, and the flags of the release that are not.
func fill(release, there *unstructured.Unstructured) *unstructured.Unstructured {
	filled := &unstructured.Unstructured{Object: fillMap(release.Object, there.Object)}
	unstructured.RemoveNestedField(filled.Object, "status")
	return filled
}

func fillMap(release, there map[string]any) map[string]any {
	filled := map[string]any{}
	for key, value := range release {
		filled[key] = fillValue(key, value, there[key])
	}
	return filled
}

func fillValue(key string, release, there any) any {
	switch value := there.(type) {
	case nil:
		return release
	case map[string]any:
		if wanted, ok := release.(map[string]any); ok {
			return fillMap(wanted, value)
		}
	case []any:
		wanted, ok := release.([]any)
		switch {
		case ok && key == "args":
			return fillFlags(wanted, value)
		case ok && keys[key] != "":
			return fillList(keys[key], wanted, value)
		}
	}
	return there
}

// fillList fills each element of the release. Elements that only are there stay, since nobody applies anything else in their place.
func fillList(name string, release, there []any) []any {
	filled := make([]any, 0, len(release))
	for _, element := range release {
		wanted, _ := element.(map[string]any)
		i := slices.IndexFunc(there, func(other any) bool {
			fields, _ := other.(map[string]any)
			return fields[name] == wanted[name]
		})
		if i < 0 {
			filled = append(filled, element)
			continue
		}
		fields, _ := there[i].(map[string]any)
		filled = append(filled, fillMap(wanted, fields))
	}
	return filled
}

// fillFlags adds the flags that are not among the arguments.
func fillFlags(release, there []any) []any {
	filled := slices.Clone(there)
	for _, argument := range release {
		flag, _, _ := strings.Cut(fmt.Sprint(argument), "=")
		has := func(other any) bool { name, _, _ := strings.Cut(fmt.Sprint(other), "="); return name == flag }
		if !slices.ContainsFunc(there, has) {
			filled = append(filled, argument)
		}
	}
	return filled
}

// setImage gives the container of the hub its image.
func setImage(deployment *unstructured.Unstructured, image string) error {
	path := []string{"spec", "template", "spec", "containers"}
	containers, _, err := unstructured.NestedSlice(deployment.Object, path...)
	if err != nil {
		return fmt.Errorf("reading the containers of the Deployment: %w", err)
	}
	for _, container := range containers {
		if fields, ok := container.(map[string]any); ok && fields["name"] == installation.ContainerName {
			fields["image"] = image
		}
	}
	return unstructured.SetNestedSlice(deployment.Object, containers, path...)
}
