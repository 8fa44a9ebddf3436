// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/siderolabs/talos/pkg/machinery/textdiff"
	"go.yaml.in/yaml/v4"
)

// MostDiff is how long a diff may be: it is kept in a status.
const MostDiff = 30000

// Operation is what becomes of a field.
type operation string

const (
	added   operation = "added"
	removed operation = "removed"
	changed operation = "changed"
)

// change is a field that differs between two configs.
type change struct {
	kind string
	path path
	what operation

	// whole says that the document itself is added or removed.
	whole bool
}

// String names the field for people.
func (c change) String() string {
	if c.kind == mainKind {
		return c.path.String()
	}
	if c.whole {
		return c.kind
	}
	return c.kind + "." + c.path.String()
}

// changes are the fields that differ between two configs in their normal form.
func changes(from, to []document) []change {
	var list []change
	for _, old := range from {
		now, there := withID(to, old.id())
		list = append(list, changesOf(old, now, there)...)
	}
	for _, now := range to {
		if _, there := withID(from, now.id()); !there {
			list = append(list, wholly(now, added)...)
		}
	}
	return list
}

func withID(documents []document, id string) (document, bool) {
	i := slices.IndexFunc(documents, func(d document) bool { return d.id() == id })
	if i < 0 {
		return document{}, false
	}
	return documents[i], true
}

func wholly(d document, what operation) []change {
	var list []change
	for _, l := range leavesOf(d.tree) {
		list = append(list, change{kind: d.kind, path: l.path, what: what, whole: true})
	}
	return list
}

func changesOf(old, now document, there bool) []change {
	if !there {
		return wholly(old, removed)
	}
	if bytes.Equal(old.raw, now.raw) {
		return nil
	}
	before, after := leavesOf(old.tree), leavesOf(now.tree)
	was, is := byPath(before), byPath(after)
	var list []change
	for _, l := range before {
		switch other, there := is[l.path.String()]; {
		case !there:
			list = append(list, change{kind: old.kind, path: l.path, what: removed})
		case !same(l, other):
			list = append(list, change{kind: old.kind, path: l.path, what: changed})
		}
	}
	for _, l := range after {
		if _, there := was[l.path.String()]; !there {
			list = append(list, change{kind: old.kind, path: l.path, what: added})
		}
	}
	return list
}

func byPath(leaves []leaf) map[string]leaf {
	all := make(map[string]leaf, len(leaves))
	for _, l := range leaves {
		all[l.path.String()] = l
	}
	return all
}

func same(a, b leaf) bool {
	return a.node.Kind == b.node.Kind && a.node.ShortTag() == b.node.ShortTag() && a.value() == b.value()
}

// diff is what differs between two configs in their normal form: unified, and with every secret masked.
func diff(from, to []document) string {
	old, now := text(from, nil), text(to, from)
	out, err := textdiff.DiffWithCustomPaths(old, now, "in force", "asked for")
	if err != nil {
		return "the difference is too large to be shown"
	}
	return cut(out)
}

// text are documents as people read them, with secrets masked.
func text(documents, before []document) string {
	sorted := slices.Clone(documents)
	slices.SortStableFunc(sorted, func(a, b document) int { return strings.Compare(order(a), order(b)) })
	var out strings.Builder
	for i, d := range sorted {
		var was map[string]string
		if old, there := withID(before, d.id()); there {
			was = values(old)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(written(masked(d, was).tree))
	}
	return out.String()
}

// order sorts documents: the main one first, then by kind and name.
func order(d document) string {
	if d.kind == mainKind {
		return ""
	}
	return d.id()
}

// written is a tree as text.
func written(tree *yaml.Node) []byte {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(indent)
	if encoder.Encode(tree) != nil || encoder.Close() != nil {
		return []byte("# this document cannot be written\n")
	}
	return out.Bytes()
}

// indent is how far machinery indents.
const indent = 4

// cut shortens a text to what a status holds, and says so.
func cut(text string) string {
	if len(text) <= MostDiff {
		return text
	}
	kept := text[:MostDiff]
	for !utf8.ValidString(kept) {
		kept = kept[:len(kept)-1]
	}
	kept = kept[:strings.LastIndexByte(kept, '\n')+1]
	return kept + fmt.Sprintf("# and %d lines more\n", strings.Count(text[len(kept):], "\n"))
}
