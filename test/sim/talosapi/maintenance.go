// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/grpc-proxy/proxy"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sim "ichor.maesh.dev/hub/test/sim/machine"
	"ichor.maesh.dev/hub/test/sim/pki"
)

// maintenanceTLS is what a machine serves that has lost its machine config: a certificate that nobody can know, and no question for one.
func (n *node) maintenanceTLS() (*tls.Config, error) {
	certificate, err := n.maintenanceCertificate()
	if err != nil {
		return nil, fmt.Errorf("certificate of %s in maintenance mode: %w", n.Name, err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}}, nil
}

// strange is a certificate by a CA that nobody knows, for one boot.
type strange struct {
	bootID      string
	certificate tls.Certificate
}

// maintenanceCertificate is that of the boot: the next one makes another, since nothing is kept.
func (n *node) maintenanceCertificate() (tls.Certificate, error) {
	bootID := n.State().BootID
	n.dialing.Lock()
	defer n.dialing.Unlock()
	if n.strange.bootID == bootID {
		return n.strange.certificate, nil
	}
	certificate, err := pki.Strange(n.Name)
	if err == nil {
		n.strange = strange{bootID, certificate}
	}
	return certificate, err
}

// Fingerprint is the fingerprint of the key of the certificate that a machine in maintenance mode serves, as Talos writes it on the console.
func (c *Cluster) Fingerprint(name string) (string, error) {
	n := c.byName[name]
	if n == nil || !n.inMaintenance() {
		return "", fmt.Errorf("machine %q: %w", name, errNotInMaintenance)
	}
	certificate, err := n.maintenanceCertificate()
	if err != nil {
		return "", err
	}
	return x509.SPKIFingerprint(certificate.Leaf).String(), nil
}

var errNotInMaintenance = errors.New("it is not in maintenance mode")

// applyInMaintenance is the path by which a machine without a machine config gets one.
const applyInMaintenance = "/machine.MachineService/ApplyConfiguration"

// offeredInMaintenance are the methods that a machine without a machine config answers.
var offeredInMaintenance = []string{
	"/cosi.resource.State/", "/machine.MachineService/Version", "/storage.StorageService/Disks", applyInMaintenance,
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
func (n *node) describeInMaintenance(now sim.State) []resource.Resource {
	list := []resource.Resource{machineStatus(now), version(now), n.systemInformation(), n.platformMetadata(), n.securityState()}
	list = append(list, schematic(now)...)
	return append(append(list, n.disks(true)...), n.network()...)
}

// toInstall is the validation mode of machines whose disk has to be named.
type toInstall struct{ installed }

// RequiresInstall implements validation.RuntimeMode.
func (toInstall) RequiresInstall() bool { return true }

// provision checks a machine config for a machine that has none, and gives it to the machine.
func (n *node) provision(ctx context.Context, req *machineapi.ApplyConfigurationRequest) (*machineapi.ApplyConfigurationResponse, error) {
	config, err := configloader.NewFromBytes(req.GetData())
	switch {
	case err != nil:
		return nil, status.Error(codes.InvalidArgument, err.Error())
	case config.RawV1Alpha1() == nil:
		return nil, status.Error(codes.InvalidArgument, "the applied machine configuration doesn't contain v1alpha1 config")
	case req.GetMode() == modeTry, req.GetMode() == modeStaged:
		return nil, status.Errorf(codes.Unimplemented, "apply configuration --mode='%s' is not supported in maintenance mode", req.GetMode())
	case config.Machine().Type() != n.role():
		return nil, status.Errorf(codes.InvalidArgument, "the simulated machine %s becomes a %s, and the config is of a %s", n.Name, n.role(), config.Machine().Type())
	}
	warnings, err := config.ValidateAtRuntime(ctx, state.WrapCore(n.current().core), toInstall{installed{platform: n.Platform}})
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	details := "Applied configuration with a reboot"
	if req.GetDryRun() {
		details = "Dry run summary:\n" + details + " (skipped in dry-run)."
	} else if err := n.Provision(config); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &machineapi.ApplyConfigurationResponse{Messages: []*machineapi.ApplyConfiguration{{
		Mode: modeAuto, Warnings: warnings, ModeDetails: details,
	}}}, nil
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
