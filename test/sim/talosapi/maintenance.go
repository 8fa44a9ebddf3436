// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/grpc-proxy/proxy"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sim "ichor.maesh.dev/hub/test/sim/machine"
	"ichor.maesh.dev/hub/test/sim/pki"
)

// maintenanceTLS is what a machine serves that has lost its machine config: a certificate that nobody can know, and no question for one.
func (n *node) maintenanceTLS() (*tls.Config, error) {
	certificate, err := pki.Strange(n.Name)
	if err != nil {
		return nil, fmt.Errorf("certificate of %s in maintenance mode: %w", n.Name, err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}}, nil
}

// offeredInMaintenance are the methods that a machine without a machine config answers.
var offeredInMaintenance = []string{
	"/cosi.resource.State/", "/machine.MachineService/Version", "/storage.StorageService/Disks",
}

// routeInMaintenance keeps calls here: the machine knows of no other ones. Whoever calls is a reader.
func (n *node) routeInMaintenance(method string) (proxy.Mode, []proxy.Backend, error) {
	for _, prefix := range offeredInMaintenance {
		if strings.HasPrefix(method, prefix) {
			return proxy.One2One, []proxy.Backend{localBackend{node: n}}, nil
		}
	}
	return 0, nil, status.Errorf(codes.Unimplemented, "API is not implemented in maintenance mode")
}

// callerInMaintenance is whoever calls a machine that asks nobody who they are.
func callerInMaintenance() caller {
	return caller{name: "anybody", roles: []string{string(role.Reader)}}
}

// describeInMaintenance lists the resources of a machine without a machine config.
func (n *node) describeInMaintenance(state sim.State) []resource.Resource {
	list := []resource.Resource{machineStatus(state), version(state), n.systemInformation(), n.platformMetadata(), n.securityState()}
	list = append(list, schematic(state)...)
	return append(list, n.disks(true)...)
}

// inMaintenance says whether the node is in maintenance mode.
func (n *node) inMaintenance() bool { return n.State().Maintenance }

// whoCalls is who makes a call.
func (n *node) whoCalls(ctx context.Context) caller {
	if n.inMaintenance() {
		return callerInMaintenance()
	}
	return callerOf(ctx)
}
