// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"sync"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"
)

// times remembers a time for each of some objects.
type times struct {
	mu sync.Mutex
	at map[types.NamespacedName]time.Time
}

func (t *times) set(key types.NamespacedName, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.at == nil {
		t.at = map[types.NamespacedName]time.Time{}
	}
	t.at[key] = at
}

// until is how long it is until the time of an object; 0 if it has none, or it is past.
func (t *times) until(key types.NamespacedName, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(t.at[key].Sub(now), 0)
}

func (t *times) forget(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.at, key)
}

// messageLimit bounds every message in status.
const messageLimit = 256

// shorten cuts a message to what status holds.
func shorten(message string) string { return clip(message, messageLimit) }

// clip cuts a text at the end of a character.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	cut := max(most-len("…"), 0)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
