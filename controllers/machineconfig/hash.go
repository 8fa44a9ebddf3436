// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// mostDepth bounds how deep documents may be nested, aliases that contain themselves included.
const mostDepth = 64

// Hash is the same for configs that say the same in other words: comments, the order of keys and of documents, and how text is quoted do
// not count. It does not depend on what this version of machinery knows. Bytes that are no config have the hash of their text.
func Hash(config []byte) string {
	documents, err := split(config)
	if err != nil {
		return HashOfText(config)
	}
	slices.SortFunc(documents, func(a, b document) int { return strings.Compare(a.id(), b.id()) })
	h := sha256.New()
	for _, d := range documents {
		put(h, "doc", d.id())
		sum(h, d.tree, 0)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// HashOfText is the hash of bytes as they are.
func HashOfText(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// put writes words so that no others come to the same bytes.
func put(h hash.Hash, words ...string) {
	for _, word := range words {
		h.Write([]byte(strconv.Itoa(len(word))))
		h.Write([]byte{' '})
		h.Write([]byte(word))
	}
}

func sum(h hash.Hash, node *yaml.Node, depth int) {
	node = resolve(node)
	switch {
	case node == nil || depth > mostDepth:
		put(h, "nothing")
	case node.Kind == yaml.MappingNode:
		pairs := pairsOf(node)
		slices.SortStableFunc(pairs, func(a, b pair) int { return strings.Compare(a.key, b.key) })
		put(h, "map", strconv.Itoa(len(pairs)))
		for _, p := range pairs {
			put(h, p.key)
			sum(h, p.value, depth+1)
		}
	case node.Kind == yaml.SequenceNode:
		put(h, "list", strconv.Itoa(len(node.Content)))
		for _, item := range node.Content {
			sum(h, item, depth+1)
		}
	default:
		put(h, node.ShortTag(), node.Value)
	}
}

// pair is a key of a mapping, and its value.
type pair struct {
	key   string
	value *yaml.Node
}

func pairsOf(mapping *yaml.Node) []pair {
	pairs := make([]pair, 0, len(mapping.Content)/2)
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		pairs = append(pairs, pair{resolve(mapping.Content[i]).Value, mapping.Content[i+1]})
	}
	return pairs
}
