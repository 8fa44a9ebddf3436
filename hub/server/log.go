// SPDX-License-Identifier: Apache-2.0

package server

import (
	"log"
	"strings"

	"github.com/go-logr/logr"
)

// quiet logs at level debug what the HTTP server has to say: it is about clients that break off, or do not trust the certificate.
func quiet(to logr.Logger) *log.Logger { return log.New(lines{to.WithName("http")}, "", 0) }

// lines makes each line a message.
type lines struct{ to logr.Logger }

// Write implements io.Writer.
func (l lines) Write(line []byte) (int, error) {
	l.to.V(debugLevel).Info(strings.TrimSpace(string(line)))
	return len(line), nil
}
