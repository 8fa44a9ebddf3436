// SPDX-License-Identifier: Apache-2.0

package server

import "io"

// timedBody is the body of a request that has to arrive in time.
type timedBody struct {
	io.ReadCloser

	arrived func() // Called when all of it is here: the connection may be quiet from then on.
}

// Read implements io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.arrived()
	}
	return n, err
}
