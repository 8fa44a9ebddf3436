// SPDX-License-Identifier: Apache-2.0

// Package kustomize renders what is in config/, for the tools that package it and the tests that look at it.
package kustomize

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Build renders a directory as `kubectl kustomize` does.
func Build(dir string) ([]byte, error) {
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("rendering %s: %w", dir, err)
	}
	return rendered.AsYaml()
}

// Objects renders a directory and reads the objects, in the order in which they are applied.
func Objects(dir string) ([]*unstructured.Unstructured, error) {
	manifests, err := Build(dir)
	if err != nil {
		return nil, err
	}
	objects, err := Read(manifests)
	if err != nil {
		return nil, fmt.Errorf("reading what %s renders to: %w", dir, err)
	}
	return objects, nil
}

// Read reads the objects of manifests.
func Read(manifests []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading a manifest: %w", err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}
