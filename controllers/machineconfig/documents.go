// SPDX-License-Identifier: Apache-2.0

// Package machineconfig works with the machine configs of Talos: it renders what a machine shall have, compares that with what it has, and
// says what it takes to bring it in force.
//
// Everything here is pure. Configs hold secrets: what leaves the package as text, in a diff or an error, has them masked.
package machineconfig

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"go.yaml.in/yaml/v4"
)

// mainKind stands for the document that has no kind.
const mainKind = "v1alpha1"

// document is one document of a machine config.
type document struct {
	// kind and name tell documents apart; the main document has kind v1alpha1.
	kind, name string

	// raw are its bytes, without the line that parts documents; tree is what they say.
	raw  []byte
	tree *yaml.Node

	// known documents are those that this version of machinery reads. The others are carried along byte for byte.
	known bool
}

// id names a document for people.
func (d document) id() string { return strings.TrimSpace(d.kind + " " + d.name) }

// errNoMain means that bytes are no machine config of an installed machine.
var errNoMain = errors.New("it has no v1alpha1 document, the one with the sections machine and cluster")

// split parts a config into its documents.
func split(config []byte) ([]document, error) {
	var documents []document
	for _, raw := range chunks(config) {
		d, err := parse(raw)
		if err != nil {
			return nil, err
		}
		if d.tree == nil {
			continue
		}
		if slices.ContainsFunc(documents, func(other document) bool { return other.id() == d.id() }) {
			return nil, fmt.Errorf("document %s is there twice", d.id())
		}
		documents = append(documents, d)
	}
	return documents, nil
}

// chunks parts a stream of documents at the lines that begin them. YAML lets no other line begin so.
func chunks(stream []byte) [][]byte {
	var list [][]byte
	var current []byte
	for line := range bytes.Lines(stream) {
		if begin, ok := bytes.CutPrefix(line, []byte("---")); ok && (len(bytes.TrimRight(begin, "\r\n")) == 0 || begin[0] == ' ' || begin[0] == '\t') {
			list, current = append(list, current), nil
			line = begin
			if len(bytes.TrimSpace(begin)) == 0 {
				continue
			}
		}
		current = append(current, line...)
	}
	return append(list, current)
}

// treeOf reads one document of any shape. One that holds nothing has no tree.
func treeOf(raw []byte) (tree *yaml.Node, err error) {
	defer func() {
		if recover() != nil { // What the library makes of broken input is its own affair.
			err = errNotYAML
		}
	}()
	var node yaml.Node
	if yaml.Unmarshal(raw, &node) != nil {
		return nil, errNotYAML // The library's words repeat what it read.
	}
	if node.Kind != yaml.DocumentNode || len(node.Content) != 1 || node.Content[0].ShortTag() == "!!null" {
		return nil, nil
	}
	if budget := mostNodes; !affordable(node.Content[0], 0, &budget) {
		return nil, errTooLarge
	}
	return node.Content[0], nil
}

// parse reads one document. One that holds nothing has no tree.
func parse(raw []byte) (document, error) {
	tree, err := treeOf(raw)
	if tree == nil || err != nil {
		return document{}, err
	}
	if tree.Kind != yaml.MappingNode {
		return document{}, errors.New("a document is not a mapping")
	}
	d := document{kind: mainKind, raw: raw, tree: tree}
	if kind := find(tree, "kind"); kind != nil {
		d.kind = kind.Value
	}
	if name := find(tree, "name"); name != nil && d.kind != mainKind {
		d.name = name.Value
	}
	d.known = d.kind == mainKind || isKnown(d.kind)
	return d, nil
}

// errNotYAML means that bytes are not YAML.
var errNotYAML = errors.New("it is not YAML")

// mostNodes bounds a document once its aliases are followed: a few of them may stand for more than there is memory.
const mostNodes = 200_000

// errTooLarge means that a document is too large or nested too deeply, or contains itself.
var errTooLarge = errors.New("a document is too large, or contains itself")

// affordable says whether a tree may be walked, and takes what that costs off a budget.
func affordable(node *yaml.Node, depth int, budget *int) bool {
	node = resolve(node)
	*budget--
	if *budget < 0 || depth > mostDepth {
		return false
	}
	if node == nil {
		return true
	}
	for _, child := range node.Content {
		if !affordable(child, depth+1, budget) {
			return false
		}
	}
	return true
}

// knownKinds remembers which kinds of documents machinery reads.
var knownKinds sync.Map

// isKnown asks machinery to read an empty document of the kind.
func isKnown(kind string) bool {
	if known, ok := knownKinds.Load(kind); ok {
		return known.(bool) //nolint:forcetypeassert // Nothing else is stored.
	}
	empty, err := yaml.Marshal(map[string]string{"apiVersion": "v1alpha1", "kind": kind})
	if err != nil {
		return false
	}
	_, err = configloader.NewFromBytes(empty, configloader.WithNoValidation())
	if err == nil { // Of those there are as many as machinery has.
		knownKinds.Store(kind, true)
	}
	return err == nil
}

// join is the opposite of split.
func join(documents []document) []byte {
	var out bytes.Buffer
	for _, d := range documents {
		if out.Len() > 0 {
			if !bytes.HasSuffix(out.Bytes(), []byte("\n")) {
				out.WriteByte('\n')
			}
			out.WriteString("---\n")
		}
		out.Write(d.raw)
	}
	return out.Bytes()
}

// known are the documents that machinery reads; others are the rest.
func part(documents []document) (known, others []document) {
	for _, d := range documents {
		if d.known {
			known = append(known, d)
		} else {
			others = append(others, d)
		}
	}
	return known, others
}

// load has machinery read documents that it knows.
func load(documents []document) (config.Provider, error) {
	provider, err := configloader.NewFromBytes(join(documents))
	if err != nil {
		return nil, words(err, documents)
	}
	if provider.RawV1Alpha1() == nil {
		return nil, errNoMain
	}
	return provider, nil
}

// normal writes documents as machinery writes them, so that those which say the same look the same.
func normal(documents []document) ([]document, error) {
	known, others := part(documents)
	provider, err := load(known)
	if err != nil {
		return nil, err
	}
	encoded, err := encode(provider)
	return slices.Concat(encoded, others), err
}

// encode is what machinery writes.
func encode(provider config.Provider) ([]document, error) {
	data, err := provider.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return nil, words(err, nil)
	}
	return split(data)
}

// find returns the value of a key of a mapping, or nil.
func find(mapping *yaml.Node, key string) *yaml.Node {
	mapping = resolve(mapping)
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

// resolve follows an alias.
func resolve(node *yaml.Node) *yaml.Node {
	if node != nil && node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// at returns the value at a path of keys, or nil.
func at(tree *yaml.Node, path []string) *yaml.Node {
	for _, key := range path {
		tree = find(tree, key)
	}
	return resolve(tree)
}
