// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"slices"
	"strconv"
	"strings"
)

// element is a key of a mapping, or an index of a list.
type element struct {
	key  string
	list bool
}

// path is where something is in a document.
type path []element

func (p path) key(key string) path { return append(slices.Clip(p), element{key: key}) }

func (p path) index(i int) path {
	return append(slices.Clip(p), element{key: strconv.Itoa(i), list: true})
}

// String writes a path as people write it: machine.network.interfaces[0].mtu.
func (p path) String() string {
	var out strings.Builder
	for _, e := range p {
		switch {
		case e.list:
			out.WriteString("[" + e.key + "]")
		case out.Len() > 0:
			out.WriteString("." + e.key)
		default:
			out.WriteString(e.key)
		}
	}
	return out.String()
}

// keys are the keys of a path, without indexes.
func (p path) keys() []string {
	keys := make([]string, 0, len(p))
	for _, e := range p {
		if !e.list {
			keys = append(keys, e.key)
		}
	}
	return keys
}

// last is the last key of a path.
func (p path) last() string {
	keys := p.keys()
	if len(keys) == 0 {
		return ""
	}
	return keys[len(keys)-1]
}

// matches says whether keys begin as a pattern says, in which * stands for any key.
func matches(keys []string, pattern string) bool {
	wanted := strings.Split(pattern, ".")
	if len(keys) < len(wanted) {
		return false
	}
	for i, key := range wanted {
		if key != "*" && key != keys[i] {
			return false
		}
	}
	return true
}
