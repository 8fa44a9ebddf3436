// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"errors"
	"net"
	"syscall"
)

// attentive is a connection on which a peer that hung up is still listened to. With TLS 1.3 a server says only after the handshake that it
// does not accept a certificate, and hangs up; who writes first would learn of a broken pipe, and never read why.
type attentive struct{ net.Conn }

// Write implements net.Conn. What the peer does not take is lost either way, and reading tells so at once.
func (c attentive) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return len(p), nil
	}
	return n, err
}
