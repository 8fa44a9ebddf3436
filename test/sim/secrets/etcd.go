// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"errors"

	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// etcd writes the certificates of the etcd member, and those with which Talos and the API server call it.
func (r *renderer) etcd() error {
	if r.roots.Etcd == nil {
		return nil
	}
	ca, peer, server := r.roots.Etcd.EtcdCA, &names{}, &names{}
	for _, n := range []*names{peer, server} {
		if err := n.own(r.node); err != nil {
			return err
		}
	}
	server.AppendDNSNames("localhost")
	server.Append("::1")
	r.files[constants.EtcdCACert], r.files[constants.EtcdCAKey] = ca.Crt, ca.Key
	r.files[EtcdClientCA] = ca.Crt
	return errors.Join(
		r.put(constants.EtcdCert, ca, wanted{name: r.node.Name, dns: server.DNSNames, ips: server.StdIPs(), usages: bothSides, keyUsage: encipher}),
		r.put(constants.EtcdPeerCert, ca, wanted{name: r.node.Name, dns: peer.DNSNames, ips: peer.StdIPs(), usages: bothSides, keyUsage: encipher}),
		r.put(constants.EtcdAdminCert, ca, wanted{name: "talos", usages: clientOnly, keyUsage: encipher}),
		r.put(EtcdClient, ca, wanted{name: "kube-apiserver", usages: clientOnly, keyUsage: encipher}),
	)
}
