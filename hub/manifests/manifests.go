// SPDX-License-Identifier: Apache-2.0

// Package manifests reads what config/ carries: the hub brings its definitions, roles and policies along, and the manifests of its own release.
package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// moveLabel on a definition makes "clusterctl move" take its objects along; all others it leaves behind without a word.
const moveLabel = "clusterctl.cluster.x-k8s.io"

// Definitions reads definitions, and labels them as clusterctl and config/crd do.
func Definitions(files fs.FS) ([]*unstructured.Unstructured, error) {
	definitions, err := Read(files)
	for _, definition := range definitions {
		label(definition, moveLabel, "")
	}
	return definitions, err
}

func label(object *unstructured.Unstructured, key, value string) {
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	object.SetLabels(labels)
}

// Read decodes all manifests of a file system.
func Read(files fs.FS) ([]*unstructured.Unstructured, error) {
	paths, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, err
	}
	nested, err := fs.Glob(files, "*/*.yaml")
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, path := range append(paths, nested...) {
		content, err := fs.ReadFile(files, path)
		if err != nil {
			return nil, fmt.Errorf("reading manifest: %w", err)
		}
		found, err := decode(content)
		if err != nil {
			return nil, fmt.Errorf("decoding manifest %s: %w", path, err)
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

// decode reads the objects of one file.
func decode(content []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			return nil, err
		}
		if len(object.Object) > 0 { // Comments alone are no object.
			objects = append(objects, object)
		}
	}
}
