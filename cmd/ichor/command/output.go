// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"ichor.maesh.dev/hub/cmd/ichor/follow"
)

const (
	outputTable = "table"
	outputWide  = "wide"
	outputJSON  = "json"
	outputYAML  = "yaml"
	outputName  = "name"
	outputJSONL = "jsonl"
)

var outputs = []string{outputTable, outputWide, outputJSON, outputYAML, outputName, outputJSONL}

func checkOutput(output string) error {
	if slices.Contains(outputs, output) {
		return nil
	}
	return usageError("--output %q is not one of %s", output, strings.Join(outputs, ", "))
}

// forPeople says whether the output is for people to read.
func (a *app) forPeople() bool { return a.output == outputTable || a.output == outputWide }

// table is what -o table prints; columns that are wide are printed by -o wide alone.
type table struct {
	columns []column
	rows    [][]string
}

type column struct {
	name string
	wide bool
}

// columns makes columns of names. Those that begin with + are wide.
func columns(names ...string) []column {
	made := make([]column, len(names))
	for i, name := range names {
		made[i] = column{strings.TrimPrefix(name, "+"), strings.HasPrefix(name, "+")}
	}
	return made
}

func (a *app) printTable(t table) error {
	w := tabwriter.NewWriter(a.Out, 0, 8, 3, ' ', 0)
	header := make([]string, len(t.columns))
	for i, c := range t.columns {
		header[i] = c.name
	}
	for _, row := range append([][]string{header}, t.rows...) {
		fmt.Fprintln(w, strings.Join(a.cells(t, row), "\t"))
	}
	return w.Flush()
}

// cells are those of a row that are printed.
func (a *app) cells(t table, row []string) []string {
	var cells []string
	for i, cell := range row {
		switch {
		case t.columns[i].wide && a.output != outputWide:
		case cell == "":
			cells = append(cells, "-")
		default:
			cells = append(cells, follow.Plain(cell))
		}
	}
	return cells
}

// printLines prints names and what they stand for.
func (a *app) printLines(lines [][2]string) error {
	w := tabwriter.NewWriter(a.Out, 0, 8, 2, ' ', 0)
	for _, line := range lines {
		if line[1] != "" {
			fmt.Fprintf(w, "%s:\t%s\n", line[0], follow.Plain(line[1]))
		}
	}
	return w.Flush()
}

// item is a message with a name, as -o name prints it.
type item struct {
	message proto.Message
	name    string
}

// printList prints the list that a message is: as it is, item by item, or as a table of them.
func (a *app) printList(list proto.Message, items []item, empty string, t func() table) error {
	switch a.output {
	case outputName, outputJSONL:
		for _, i := range items {
			if err := a.printItem(i); err != nil {
				return err
			}
		}
		return nil
	case outputJSON, outputYAML:
		return a.printDocument(list)
	}
	if len(items) == 0 {
		a.remark("%s", empty)
		return nil
	}
	return a.printTable(t())
}

// printItem prints one message in a format that is not for people.
func (a *app) printItem(i item) error {
	switch a.output {
	case outputName:
		fmt.Fprintln(a.Out, i.name)
		return nil
	case outputJSONL:
		data, err := compactJSON(i.message)
		if err != nil {
			return err
		}
		fmt.Fprintf(a.Out, "%s\n", data)
		return nil
	}
	return a.printDocument(i.message)
}

// printDocument prints a message as one document.
func (a *app) printDocument(message proto.Message) error {
	data, err := compactJSON(message)
	if err != nil {
		return err
	}
	return a.printJSON(data)
}

// printJSON prints JSON as JSON for people, or as YAML.
func (a *app) printJSON(data []byte) error {
	if a.output == outputYAML {
		document, err := yaml.JSONToYAML(data)
		if err != nil {
			return fmt.Errorf("writing YAML: %w", err)
		}
		fmt.Fprintf(a.Out, "%s", document)
		return nil
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, data, "", "  "); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	fmt.Fprintln(a.Out, indented.String())
	return nil
}

// asJSON names fields as the protocol does, and leaves out none that has a value of its own when it is not set: scripts can ask for false
// and 0.
var asJSON = protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}

// compactJSON is a message as JSON, the same for the same message: protojson varies its blanks.
func compactJSON(message proto.Message) ([]byte, error) {
	data, err := asJSON.Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, data); err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	return compact.Bytes(), nil
}

func (a *app) age(since *timestamppb.Timestamp) string {
	if since == nil {
		return ""
	}
	return duration.HumanDuration(a.Now().Sub(since.AsTime()))
}

// clock is a time for people, in their own zone.
func (a *app) clock(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().In(a.Now().Location()).Format(time.DateTime)
}

// word is the name of a value of an enum for people: OPERATION_PHASE_IN_PROGRESS is InProgress.
func word(prefix string, value fmt.Stringer) string {
	name := strings.TrimPrefix(value.String(), prefix)
	if name == "UNSPECIFIED" {
		return ""
	}
	var made strings.Builder
	for part := range strings.SplitSeq(name, "_") {
		made.WriteString(part[:1] + strings.ToLower(part[1:]))
	}
	return made.String()
}
