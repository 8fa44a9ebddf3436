// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"encoding/base64"

	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/target"
)

// Direct reads the facts of one machine over a connection of its own: to the machine's own address, by no endpoint that passes the call on,
// and with credentials that are in no Secret. So it proves which authorities the machine itself has its certificate from, and accepts.
func (p *Pool) Direct(ctx context.Context, t target.Target, address string, as credentials.Direct) (Machine, error) {
	config, err := p.credentials.Talosconfig(ctx, t)
	if err != nil {
		return Machine{}, err
	}
	chosen := *config.Context // The proxy on the way to the target stays.
	chosen.Endpoints, chosen.Nodes = []string{address}, nil
	chosen.CA = base64.StdEncoding.EncodeToString(as.Authorities())
	chosen.Crt, chosen.Key = base64.StdEncoding.EncodeToString(as.Client.Certificate), base64.StdEncoding.EncodeToString(as.Client.Key)
	reader, end, err := Open(&credentials.Talosconfig{Context: &chosen, Name: config.Name})
	if err != nil {
		return Machine{}, err
	}
	defer end()
	return reader.Machine(ctx, "")
}
