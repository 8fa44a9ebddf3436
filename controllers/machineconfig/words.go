// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"errors"
	"regexp"
	"sort"
	"strings"

	"go.yaml.in/yaml/v4"
)

// mostWords bounds what an error says: it ends up in a status.
const mostWords = 200

var (
	// quoted is what libraries repeat of what they read.
	quoted = regexp.MustCompile("`[^`]*`|\"[^\"]*\"|'[^']*'")

	// unknownKeys is how machinery says that a document has fields which it does not know: those follow, with their values.
	unknownKeys = "unknown keys found during decoding:"

	// shown is how a machine, and machinery, say that a diff follows.
	shown = "\ndiff:"
)

// words says of an error of machinery or of a machine what can be told: what they read may have been a secret, so what they quote is left
// out, and so is whatever else is a secret of the documents.
func words(err error, documents []document) error {
	return errors.New(cleaned(err.Error(), documents))
}

// Cleaned is the text of an error about a config, as a machine may answer it, without what is a secret in the configs.
func Cleaned(text string, configs ...[]byte) string {
	var all []document
	for _, config := range configs {
		documents, err := split(config)
		if err != nil {
			return "the machine does not take the config" // Nobody knows what of it would be a secret.
		}
		all = append(all, documents...)
	}
	return cleaned(text, all)
}

func cleaned(text string, documents []document) string {
	if before, _, found := strings.Cut(text, shown); found {
		text = before
	}
	if before, after, found := strings.Cut(text, unknownKeys); found {
		text = strings.TrimSpace(before + " unknown fields: " + strings.Join(keysOf(after), ", "))
	}
	for _, secret := range secretsOf(documents) {
		text = strings.ReplaceAll(text, secret, Mask)
	}
	text = quoted.ReplaceAllString(text, "…")
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > mostWords {
		text = string(runes[:mostWords-1]) + "…"
	}
	return text
}

// keysOf are the paths of the keys that a text of YAML has, without their values.
func keysOf(text string) []string {
	d, err := parse([]byte(text))
	if err != nil || d.tree == nil {
		return []string{"…"}
	}
	var paths []string
	for _, leaf := range leavesOf(d.tree) {
		paths = append(paths, leaf.path.String())
	}
	sort.Strings(paths)
	return paths
}

// secretsOf are the texts in documents that are secrets, the longest first.
func secretsOf(documents []document) []string {
	seen := map[string]bool{}
	for _, d := range documents {
		rules := rulesOf(d)
		for _, leaf := range leavesOf(d.tree) {
			if len(leaf.value()) >= shortestSecret && rules.masks(leaf) {
				seen[leaf.value()] = true
				for _, line := range strings.Split(leaf.value(), "\n") {
					if line = strings.TrimSpace(line); len(line) >= shortestSecret {
						seen[line] = true
					}
				}
			}
		}
	}
	list := make([]string, 0, len(seen))
	for secret := range seen {
		list = append(list, secret)
	}
	sort.Slice(list, func(i, j int) bool {
		if len(list[i]) != len(list[j]) {
			return len(list[i]) > len(list[j])
		}
		return list[i] < list[j]
	})
	return list
}

// shortestSecret is how long a text is at least that is looked for in other texts: shorter ones are in everything.
const shortestSecret = 4

// leaf is a scalar of a document.
type leaf struct {
	path path
	node *yaml.Node
}

func (l leaf) value() string { return l.node.Value }

// leavesOf are the scalars of a document, and the mappings and lists that hold nothing.
func leavesOf(tree *yaml.Node) []leaf {
	var leaves []leaf
	var walk func(at path, node *yaml.Node)
	walk = func(at path, node *yaml.Node) {
		node = resolve(node)
		switch {
		case node == nil || len(at) > mostDepth:
		case node.Kind == yaml.MappingNode && len(node.Content) > 0:
			for _, p := range pairsOf(node) {
				walk(at.key(p.key), p.value)
			}
		case node.Kind == yaml.SequenceNode && len(node.Content) > 0:
			for i, item := range node.Content {
				walk(at.index(i), item)
			}
		default:
			leaves = append(leaves, leaf{at, node})
		}
	}
	walk(nil, tree)
	return leaves
}
