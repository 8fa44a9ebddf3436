// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"ichor.maesh.dev/hub/hub/scheme"
)

const (
	outputTable = "table"
	outputJSON  = "json"
	outputYAML  = "yaml"
	outputName  = "name"
)

var outputs = []string{outputTable, outputJSON, outputYAML, outputName}

func checkOutput(output string) error {
	if slices.Contains(outputs, output) {
		return nil
	}
	return usageError("--output %q is not one of %s", output, strings.Join(outputs, ", "))
}

// table is what -o table prints.
type table struct {
	header []string
	rows   [][]string
}

// printList prints objects: as a table that is made of them, or as they are.
func (c *cli) printList(list client.ObjectList, empty string, t func() table) error {
	if c.output != outputTable {
		return c.printObject(list)
	}
	made := t()
	if len(made.rows) == 0 {
		fmt.Fprintln(c.err, empty)
		return nil
	}
	return c.printTable(made)
}

func (c *cli) printTable(t table) error {
	w := tabwriter.NewWriter(c.out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, strings.Join(t.header, "\t"))
	for _, row := range t.rows {
		for i := range row {
			if row[i] == "" {
				row[i] = "-"
			}
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// printLines prints names and what they stand for.
func (c *cli) printLines(lines [][2]string) error {
	w := tabwriter.NewWriter(c.out, 0, 8, 2, ' ', 0)
	for _, line := range lines {
		fmt.Fprintf(w, "%s:\t%s\n", line[0], line[1])
	}
	return w.Flush()
}

// printObject prints an object, or each of a list, as JSON, YAML or name.
func (c *cli) printObject(object runtime.Object) error {
	if err := setKinds(object); err != nil {
		return err
	}
	switch c.output {
	case outputJSON:
		return (&printers.JSONPrinter{}).PrintObj(object, c.out)
	case outputYAML:
		return (&printers.YAMLPrinter{}).PrintObj(object, c.out)
	}
	if !meta.IsListType(object) {
		return (&printers.NamePrinter{}).PrintObj(object, c.out)
	}
	return meta.EachListItem(object, func(item runtime.Object) error {
		return (&printers.NamePrinter{}).PrintObj(item, c.out)
	})
}

// setKinds fills in what typed clients leave out, and takes out what nobody reads.
func setKinds(object runtime.Object) error {
	kind, err := apiutil.GVKForObject(object, scheme.New())
	if err != nil {
		return fmt.Errorf("finding the kind of %T: %w", object, err)
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	if single, ok := object.(metav1.Object); ok {
		single.SetManagedFields(nil)
	}
	if meta.IsListType(object) {
		return meta.EachListItem(object, setKinds)
	}
	return nil
}

func age(since metav1.Time, now time.Time) string {
	if since.IsZero() {
		return ""
	}
	return duration.HumanDuration(now.Sub(since.Time))
}

// statusOf is the status of a condition, Unknown if there is none.
func statusOf(conditions []metav1.Condition, kind string) string {
	if condition := meta.FindStatusCondition(conditions, kind); condition != nil {
		return string(condition.Status)
	}
	return string(metav1.ConditionUnknown)
}

// messageOf is the message of a condition.
func messageOf(conditions []metav1.Condition, kind string) string {
	if condition := meta.FindStatusCondition(conditions, kind); condition != nil {
		return condition.Message
	}
	return ""
}
