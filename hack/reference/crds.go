// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// objectsPage describes every field of the objects that files define.
func objectsPage(files []string) ([]byte, error) {
	p := newPage("The objects", "Every field of the objects on the management API. `kubectl explain KIND.FIELD` says the same.")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, definition); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		object(p, definition)
	}
	return p.Bytes(), nil
}

func object(p *page, d *apiextensionsv1.CustomResourceDefinition) {
	for _, version := range d.Spec.Versions {
		schema := version.Schema.OpenAPIV3Schema
		p.say("\n## %s\n\n`%s/%s`, %s.\n\n%s\n", d.Spec.Names.Kind, d.Spec.Group, version.Name, strings.ToLower(string(d.Spec.Scope)), paragraphs(schema.Description))
		for _, part := range slices.Sorted(maps.Keys(schema.Properties)) {
			if slices.Contains([]string{"apiVersion", "kind", "metadata"}, part) {
				continue
			}
			field := schema.Properties[part]
			p.say("\n### %s.%s\n\n%s\n", d.Spec.Names.Kind, part, paragraphs(field.Description))
			if len(field.Properties) > 0 {
				p.say("\n| field | type | |\n|---|---|---|\n")
				fields(p, "", &field)
			}
		}
	}
}

// fields writes a line for each field, and for those below it.
func fields(p *page, prefix string, schema *apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		field := schema.Properties[name]
		kind, below := typeOf(&field)
		needed := ""
		if slices.Contains(schema.Required, name) {
			needed = " *Required.*"
		}
		path := prefix + name
		p.say("| `%s` | %s | %s%s |\n", path, kind, cell(plain(strings.Join(strings.Fields(field.Description), " "))), needed)
		if below != nil && name != "conditions" { // Conditions are those of Kubernetes.
			fields(p, path+suffix(&field)+".", below)
		}
	}
}

// suffix says that what follows is about each of several.
func suffix(field *apiextensionsv1.JSONSchemaProps) string {
	if field.Type == "array" {
		return "[]"
	}
	return ""
}

// typeOf is the type of a field in words, and the schema of what is below it; nil if nothing is.
func typeOf(field *apiextensionsv1.JSONSchemaProps) (kind string, below *apiextensionsv1.JSONSchemaProps) {
	switch {
	case field.Type == "array" && field.Items != nil && field.Items.Schema != nil:
		kind, below = typeOf(field.Items.Schema)
		return "list of " + kind, below
	case field.XIntOrString:
		return "number or string", nil
	case field.AdditionalProperties != nil && field.AdditionalProperties.Schema != nil:
		kind, _ = typeOf(field.AdditionalProperties.Schema)
		return "map to " + kind, nil
	case len(field.Properties) > 0:
		return "object", field
	case len(field.Enum) > 0:
		return "one of " + enumOf(field.Enum), nil
	case field.Format != "":
		return field.Type + " (" + field.Format + ")", nil
	}
	return field.Type, nil
}

func enumOf(values []apiextensionsv1.JSON) string {
	names := make([]string, len(values))
	for i, value := range values {
		names[i] = "`" + strings.Trim(string(value.Raw), `"`) + "`"
	}
	return strings.Join(names, ", ")
}

// paragraphs joins the lines of a paragraph.
func paragraphs(text string) string {
	var joined []string
	for paragraph := range strings.SplitSeq(plain(text), "\n\n") {
		joined = append(joined, strings.Join(strings.Fields(paragraph), " "))
	}
	return strings.Join(joined, "\n\n")
}
