// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"ichor.maesh.dev/hub/hack/kustomize"
)

const (
	// namespace is the one in config/, in the place of which the chart has that of the release.
	namespace = "ichor-system"

	header = "{{- /* Generated from config/ by `make generate-chart`: change it there, or in hack/chart. */ -}}\n"
)

// parts are the files of the chart, and the directories that they are made of.
var parts = []struct{ file, dir string }{
	{"install.yaml", "default"},
	{"created-by.yaml", "policies/mutating"},
	{"cluster-api.yaml", "crd/cluster-api"},
	{"prometheus.yaml", "prometheus"},
	{"grafana.yaml", "grafana"},
}

// templates makes the files of the chart.
func templates(config string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, part := range parts {
		objects, err := kustomize.Objects(filepath.Join(config, filepath.FromSlash(part.dir)))
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		b.WriteString(header)
		for _, object := range objects {
			if object.GetKind() == "Namespace" { // Helm makes it: --create-namespace.
				continue
			}
			text, err := template(object, part.dir)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
			}
			b.WriteString(text)
		}
		files[part.file] = b.Bytes()
	}
	return files, nil
}

// template is an object with values in the place of what users choose, if they choose to have it at all.
func template(object *unstructured.Unstructured, dir string) (string, error) {
	made := &draft{object: object}
	if object.GetKind() == "CustomResourceDefinition" {
		made.annotate("helm.sh/resource-policy", "keep") // Without it every cluster would be forgotten with the release.
	}
	made.label()
	if change := changes[object.GetKind()]; change != nil {
		if err := change(made); err != nil {
			return "", err
		}
	}
	text, err := made.text()
	if err != nil {
		return "", err
	}
	if condition := conditionOf(object, dir); condition != "" {
		return "{{- if " + condition + " }}\n---\n" + text + "{{- end }}\n", nil
	}
	return "---\n" + text, nil
}

// conditionOf is what must hold for an object to be installed; empty if it always is.
func conditionOf(object *unstructured.Unstructured, dir string) string {
	if dir == "crd/cluster-api" {
		return ".Values.crds.clusterAPI"
	}
	return conditions[object.GetKind()]
}

var conditions = map[string]string{
	"CustomResourceDefinition":       ".Values.crds.install",
	"Issuer":                         "and .Values.tls.certManager.enabled (not .Values.tls.certManager.issuerRef.name)",
	"Certificate":                    ".Values.tls.certManager.enabled",
	"PodDisruptionBudget":            ".Values.podDisruptionBudget.enabled",
	"NetworkPolicy":                  ".Values.networkPolicy.enabled",
	"MutatingAdmissionPolicy":        `include "ichor-hub.createdBy" .`,
	"MutatingAdmissionPolicyBinding": `include "ichor-hub.createdBy" .`,
	"ServiceMonitor":                 ".Values.prometheus.serviceMonitor.enabled",
	"PrometheusRule":                 ".Values.prometheus.rules.enabled",
	"ConfigMap":                      ".Values.grafana.dashboard.enabled",
}

// changes put values into objects, by kind.
var changes = map[string]func(*draft) error{
	"Deployment":     changeDeployment,
	"Service":        changeService,
	"Certificate":    changeCertificate,
	"ServiceMonitor": changeServiceMonitor,
	"PodDisruptionBudget": func(d *draft) error {
		return d.scalar(".Values.podDisruptionBudget.minAvailable", "spec", "minAvailable")
	},
}

func changeDeployment(d *draft) error {
	pod := []string{"spec", "template", "spec"}
	container, err := d.only(append(pod, "containers")...)
	if err != nil {
		return err
	}
	volume, err := d.only(append(pod, "volumes")...)
	if err != nil {
		return err
	}
	container["image"] = d.mark(`{{ include "ichor-hub.image" . }}`)
	container["imagePullPolicy"] = d.mark("{{ .Values.image.pullPolicy }}")
	container["resources"] = d.block(".Values.resources")
	container["args"] = append(container["args"].([]any), d.lines(`include "ichor-hub.args" .`))
	container["volumeMounts"] = append(container["volumeMounts"].([]any), d.lines(`include "ichor-hub.volumeMounts" .`))
	volume["secret"].(map[string]any)["secretName"] = d.mark("{{ .Values.tls.secretName }}")
	if err := d.set([]any{container}, append(pod, "containers")...); err != nil {
		return err
	}
	if err := d.set([]any{volume, d.lines(`include "ichor-hub.volumes" .`)}, append(pod, "volumes")...); err != nil {
		return err
	}
	for _, field := range []struct{ value, name string }{
		{".Values.imagePullSecrets", "imagePullSecrets"}, {".Values.nodeSelector", "nodeSelector"}, {".Values.tolerations", "tolerations"},
		{".Values.affinity", "affinity"}, {".Values.topologySpreadConstraints", "topologySpreadConstraints"},
	} {
		if err := d.set(d.block(field.value), append(pod, field.name)...); err != nil {
			return err
		}
	}
	if err := d.set(d.lines(`with .Values.priorityClassName }}{{ printf "priorityClassName: %s" .`), append(pod, "priorityClassName")...); err != nil {
		return err
	}
	if err := d.set(d.lines("with .Values.podAnnotations }}{{ toYaml ."), "spec", "template", "metadata", "annotations", "more"); err != nil {
		return err
	}
	if err := d.set(d.lines("with .Values.podLabels }}{{ toYaml ."), "spec", "template", "metadata", "labels", "more"); err != nil {
		return err
	}
	return d.scalar(".Values.replicas", "spec", "replicas")
}

func changeService(d *draft) error {
	ports, _, err := unstructured.NestedSlice(d.object.Object, "spec", "ports")
	if err != nil {
		return err
	}
	ports[0].(map[string]any)["port"] = d.mark("{{ .Values.service.port }}")
	if err := d.set(ports, "spec", "ports"); err != nil {
		return err
	}
	if err := d.set(d.block(".Values.service.annotations"), "metadata", "annotations"); err != nil {
		return err
	}
	return d.scalar(".Values.service.type", "spec", "type")
}

func changeCertificate(d *draft) error {
	names, _, err := unstructured.NestedSlice(d.object.Object, "spec", "dnsNames")
	if err != nil {
		return err
	}
	if err := d.set(append(names, d.lines(`include "ichor-hub.dnsNames" .`)), "spec", "dnsNames"); err != nil {
		return err
	}
	if err := d.set(d.lines(`include "ichor-hub.issuerRef" .`), "spec", "issuerRef"); err != nil {
		return err
	}
	return d.scalar(".Values.tls.secretName", "spec", "secretName")
}

func changeServiceMonitor(d *draft) error {
	endpoint, err := d.only("spec", "endpoints")
	if err != nil {
		return err
	}
	endpoint["interval"] = d.mark("{{ .Values.prometheus.serviceMonitor.interval }}")
	endpoint["tlsConfig"] = d.lines(`include "ichor-hub.scrapeTLS" .`)
	if err := d.set([]any{endpoint}, "spec", "endpoints"); err != nil {
		return err
	}
	return d.set(d.lines("with .Values.prometheus.serviceMonitor.labels }}{{ toYaml ."), "metadata", "labels", "more")
}

// draft is an object in which marks stand for parts of a template, until it is text.
type draft struct {
	object *unstructured.Unstructured
	marks  []mark
}

// mark is what stands in a line of its own in the place of a value.
type mark struct {
	kind markKind
	text string
}

type markKind int

const (
	inline markKind = iota // key: {{ text }}
	block                  // The value is YAML over several lines; without any, there is no key either.
	lines                  // Lines of YAML instead of the whole line.
)

func (d *draft) put(kind markKind, text string) string {
	d.marks = append(d.marks, mark{kind, text})
	return "@" + strconv.Itoa(len(d.marks)-1) + "@"
}

func (d *draft) mark(text string) string   { return d.put(inline, text) }
func (d *draft) block(value string) string { return d.put(block, value) }
func (d *draft) lines(call string) string  { return d.put(lines, call) }

func (d *draft) set(value any, path ...string) error {
	return unstructured.SetNestedField(d.object.Object, value, path...)
}

func (d *draft) scalar(value string, path ...string) error {
	return d.set(d.mark("{{ "+value+" }}"), path...)
}

func (d *draft) annotate(key, value string) {
	annotations := d.object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	d.object.SetAnnotations(annotations)
}

// label adds the labels that Helm's objects have.
func (d *draft) label() {
	labels := d.object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels["helm.sh/chart"] = d.lines(`include "ichor-hub.labels" .`)
	d.object.SetLabels(labels)
}

// only is the only element of a list.
func (d *draft) only(path ...string) (map[string]any, error) {
	list, _, err := unstructured.NestedSlice(d.object.Object, path...)
	if err != nil || len(list) != 1 {
		return nil, fmt.Errorf("%s: want one element, found %d: %w", strings.Join(path, "."), len(list), err)
	}
	return list[0].(map[string]any), nil
}

// markedLine is a line of YAML with a mark as its value, or as an element of a list.
var markedLine = regexp.MustCompile(`(?m)^( *)(- )?(?:([\w./-]+): )?'@(\d+)@'\n`)

// text is the object as a template.
func (d *draft) text() (string, error) {
	content, err := yaml.Marshal(d.object.Object)
	if err != nil {
		return "", err
	}
	text := escape(string(content))
	seen := 0
	text = markedLine.ReplaceAllStringFunc(text, func(line string) string {
		seen++
		parts := markedLine.FindStringSubmatch(line)
		index, _ := strconv.Atoi(parts[4]) // The pattern lets only digits through.
		return d.marks[index].expand(parts[1], parts[2], parts[3])
	})
	if seen != len(d.marks) {
		return "", fmt.Errorf("%d of %d marks are in places that no template can have", len(d.marks)-seen, len(d.marks))
	}
	return strings.ReplaceAll(text, namespace, "{{ .Release.Namespace }}"), nil
}

// expand writes a mark as a template, at the indentation of its line.
func (m mark) expand(indent, dash, key string) string {
	switch m.kind {
	case inline:
		return fmt.Sprintf("%s%s%s: %s\n", indent, dash, key, m.text)
	case block:
		return fmt.Sprintf("%[1]s{{- with %[2]s }}\n%[1]s%[3]s:\n%[1]s  {{- toYaml . | nindent %[4]d }}\n%[1]s{{- end }}\n", indent, m.text, key, len(indent)+2)
	}
	end := ""
	if strings.HasPrefix(m.text, "with ") {
		end = "{{- end }}"
	}
	return fmt.Sprintf("%s{{- %s | trim | nindent %d }}%s\n", indent, m.text, len(indent), end)
}

// escape keeps what looks like a template in a manifest, such as in alerts, from being taken for one.
func escape(text string) string {
	return strings.NewReplacer("{{", `{{ "{{" }}`, "}}", `{{ "}}" }}`).Replace(text)
}
