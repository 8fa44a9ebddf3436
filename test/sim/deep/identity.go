// SPDX-License-Identifier: Apache-2.0

package deep

import (
	"crypto/tls"
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"ichor.maesh.dev/hub/test/sim/secrets"
)

// identity is a client certificate among a machine's files, with the authorities that its owner trusts.
type identity struct{ certificate, authorities string }

var (
	// talos is Talos's own client of etcd.
	talos = identity{constants.EtcdAdminCert, constants.EtcdCACert}
	// administrator is that with which API servers call kubelets: its group may do everything. The simulated controllers use it.
	administrator = identity{secrets.KubeletClientOfServer, secrets.ClientCA}
	// kubelet is the kubelet's.
	kubelet = identity{secrets.KubeletClient, secrets.KubeletCA}
)

// in reads the identity from the files of a machine.
func (i identity) in(files *secrets.Files) (*tls.Config, error) {
	pair, err := files.KeyPair(i.certificate)
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	pool, err := files.Pool(i.authorities)
	if err != nil {
		return nil, fmt.Errorf("certificate authorities: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, RootCAs: pool}, nil
}
