// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"crypto/tls"
	"fmt"
	"net/http"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"ichor.maesh.dev/hub/test/sim/drain"
	"ichor.maesh.dev/hub/test/sim/kubeapi"
	"ichor.maesh.dev/hub/test/sim/secrets"
)

// drainer drains nodes as Talos does: over the network, so that faults of the Kubernetes API concern it too.
func (c *Cluster) drainer() *drain.Drainer {
	return drain.New(drain.Options{
		Server: c.Endpoint(), Transport: c.kubeletTransport, Cordoned: c.cordonedByTalos,
		Clock: c.sim.options.Clock, Timings: *c.sim.options.Timings,
	})
}

func (c *Cluster) kubeletTransport(node string) (*http.Transport, error) {
	n := c.Node(node)
	if n == nil {
		return nil, fmt.Errorf("no node is named %q", node)
	}
	files := n.machine.Files()
	if files == nil {
		return nil, fmt.Errorf("the kubelet of %s has no certificate", node)
	}
	certificate, err := files.KeyPair(secrets.KubeletClient)
	if err != nil {
		return nil, err
	}
	roots, err := files.Pool(secrets.KubeletCA)
	if err != nil {
		return nil, err
	}
	return &http.Transport{TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{certificate},
	}}, nil
}

func (c *Cluster) cordonedByTalos(node string) bool {
	obj, err := c.store.Get(kubeapi.Nodes, "", node)
	return err == nil && obj.GetAnnotations()[constants.AnnotationCordonedKey] != ""
}
