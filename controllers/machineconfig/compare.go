// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"bytes"
	"fmt"
	"strings"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// Comparison is how the config that a machine has stands to the one that it shall have. It holds no secret.
type Comparison struct {
	// Effect is what it takes to bring in force what is asked for; empty while that is not known.
	Effect v1alpha1.ConfigEffect

	// DesiredHash, ActiveHash and PersistentHash are of what is asked for, of what is in force, and of what the next boot brings in force.
	DesiredHash, ActiveHash, PersistentHash string

	// Diff is what differs, with secrets masked.
	Diff string

	// Pending says that another config is staged or tried on the machine.
	Pending string

	// Trouble says why what is asked for cannot be rendered.
	Trouble string
}

// PendingWords are what is said of a machine on which another config is staged or tried. Nothing on a machine tells the two apart.
const PendingWords = "the config on disk is neither the one in force nor the one asked for: somebody tries one (talosctl apply-config --mode=try), which ends by itself, or has staged one for the next boot"

// Compare compares what a machine has with what it shall have.
func Compare(in Input) Comparison {
	c := Comparison{ActiveHash: Hash(in.Active)}
	c.PersistentHash = hashLike(in.Persistent, in.Active, c.ActiveHash)
	made, err := render(in)
	if err != nil {
		c.Trouble = short(err.Error())
		c.pend()
		return c
	}
	c.DesiredHash = hashLike(made.config, in.Active, c.ActiveHash)
	c.Effect, _ = effectOf(made.changes, in.Version)
	if len(made.changes) > 0 {
		c.Diff = diff(made.active, made.now)
	}
	c.Diff = noted(made.kept) + c.Diff
	c.pend()
	return c
}

// hashLike is the hash of a config, which often is one whose hash is known.
func hashLike(config, known []byte, hash string) string {
	if bytes.Equal(config, known) {
		return hash
	}
	return Hash(config)
}

func (c *Comparison) pend() {
	if c.PersistentHash != c.ActiveHash && c.PersistentHash != c.DesiredHash {
		c.Pending = PendingWords
	}
}

// noted are lines that say what patches ask for and a roll-out does not change.
func noted(kept []string) string {
	if len(kept) == 0 {
		return ""
	}
	return fmt.Sprintf("# not changed by a roll-out, whatever patches say: %s\n", strings.Join(kept, ", "))
}

// mostTrouble is how long the words in a status may be.
const mostTrouble = 256

func short(text string) string {
	if runes := []rune(text); len(runes) > mostTrouble {
		return string(runes[:mostTrouble-1]) + "…"
	}
	return text
}
