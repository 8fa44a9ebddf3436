// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"google.golang.org/grpc"

	"ichor.maesh.dev/hub/providers/guard"
)

// Unconfigured are the facts of a machine in maintenance mode: it has no machine config and belongs to no cluster.
type Unconfigured struct {
	// UUID is the identity of the hardware.
	UUID string

	// Fingerprint is that of the certificate which the machine serves: SHA-256 of its public key, in base64.
	Fingerprint string

	// Version is the version of Talos that runs, with its v.
	Version string

	// Platform is the Talos platform, such as metal, and SecureBoot whether the machine booted with Secure Boot.
	Platform   string
	SecureBoot bool

	// SystemDisk is the disk that has Talos on it already; empty where it runs from something else, such as an image on a network.
	SystemDisk string

	// Disks are those that Talos can be installed on, by their paths.
	Disks []Disk

	// Addresses are those that the machine has now.
	Addresses []string

	// Hostname is what the machine is called now: by its platform or DHCP, or by what Talos makes of its hardware's identity.
	Hostname string
}

// Disk is a disk of a machine.
type Disk struct {
	Path, Model string

	// Size is in bytes.
	Size uint64
}

// FingerprintError means that another certificate is served than was asked for: by another machine, or after another boot.
type FingerprintError struct{ Address, Want, Got string }

// Error says which certificates.
func (e *FingerprintError) Error() string {
	return fmt.Sprintf("the machine at %s serves a certificate with fingerprint %s, and not %s", e.Address, e.Got, e.Want)
}

// Inspect asks a machine in maintenance mode who it is and what it has. An empty fingerprint takes any certificate: then nobody knows yet
// which machine answers, and nothing is to be trusted but for people to read.
func Inspect(ctx context.Context, address, fingerprint string) (Unconfigured, error) {
	c, served, err := unconfigured(ctx, address, fingerprint, nil)
	if err != nil {
		return Unconfigured{}, err
	}
	defer c.client.Close() //nolint:errcheck // Nothing is under way any more.
	found := Unconfigured{}
	for _, read := range []func(context.Context, *connection, *Unconfigured) error{readWho, readDisks, readAddresses, readHostname} {
		if err := read(ctx, c, &found); err != nil {
			return Unconfigured{}, served.explain(address, err)
		}
	}
	found.Fingerprint = served.fingerprint
	return found, nil
}

// served is what the handshake has found.
type served struct {
	fingerprint string
	other       *FingerprintError
}

// explain says that the certificate was another one, where that is why a call has failed.
func (s *served) explain(address string, err error) error {
	if s.other != nil {
		return s.other
	}
	return fmt.Errorf("machine at %s in maintenance mode: %w", address, err)
}

// unconfigured prepares a connection of its own, straight to the machine: it has no certificate that an authority vouches for, and asks for
// none. What it serves is held against the fingerprint.
func unconfigured(ctx context.Context, address, fingerprint string, g guard.Func) (*connection, *served, error) {
	seen := &served{}
	config := &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, //nolint:gosec // Nobody vouches for the certificate; its fingerprint is what is verified.
		VerifyConnection: func(state tls.ConnectionState) error {
			seen.fingerprint = x509.SPKIFingerprint(state.PeerCertificates[0]).String()
			if fingerprint == "" || seen.fingerprint == fingerprint {
				return nil
			}
			seen.other = &FingerprintError{Address: address, Want: fingerprint, Got: seen.fingerprint}
			return seen.other
		},
	}
	opened, err := client.New(ctx, client.WithTLSConfig(config), client.WithEndpoints(address), client.WithGRPCDialOptions(
		grpc.WithChainUnaryInterceptor(guardUnary), grpc.WithChainStreamInterceptor(guardStream)))
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to %s in maintenance mode: %w", address, err)
	}
	return &connection{client: opened, guard: g}, seen, nil
}

func readWho(ctx context.Context, c *connection, found *Unconfigured) error {
	m := Machine{}
	for _, read := range []func(context.Context, *Machine) error{c.readVersion, c.readIdentity, c.readFlavour} {
		if err := read(ctx, &m); err != nil {
			return err
		}
	}
	found.UUID, found.Version, found.Platform, found.SecureBoot = m.UUID, m.Version, m.Platform, m.SecureBoot
	return nil
}

func readDisks(ctx context.Context, c *connection, found *Unconfigured) error {
	system, err := get[*block.SystemDisk](ctx, c, block.NamespaceName, block.SystemDiskType, block.SystemDiskID)
	if err != nil {
		return err
	}
	if system != nil {
		found.SystemDisk = system.TypedSpec().DevPath
	}
	disks, err := safe.StateList[*block.Disk](ctx, c.client.COSI, resource.NewMetadata(block.NamespaceName, block.DiskType, "", resource.VersionUndefined))
	if err != nil {
		return fmt.Errorf("reading the disks: %w", err)
	}
	for disk := range disks.All() {
		if spec := disk.TypedSpec(); !spec.Readonly && !spec.CDROM && spec.Transport != "" { // What has no transport is made of others, or of memory.
			found.Disks = append(found.Disks, Disk{Path: spec.DevPath, Model: spec.Model, Size: spec.Size})
		}
	}
	slices.SortFunc(found.Disks, func(a, b Disk) int { return strings.Compare(a.Path, b.Path) })
	return nil
}

func readAddresses(ctx context.Context, c *connection, found *Unconfigured) error {
	addresses, err := get[*network.NodeAddress](ctx, c, network.NamespaceName, network.NodeAddressType, network.NodeAddressCurrentID)
	if err != nil || addresses == nil {
		return err
	}
	for _, prefix := range addresses.TypedSpec().Addresses {
		found.Addresses = append(found.Addresses, prefix.Addr().String())
	}
	return nil
}

func readHostname(ctx context.Context, c *connection, found *Unconfigured) error {
	name, err := get[*network.HostnameStatus](ctx, c, network.NamespaceName, network.HostnameStatusType, network.HostnameID)
	if err != nil || name == nil {
		return err
	}
	found.Hostname = name.TypedSpec().FQDN()
	return nil
}

// Inspect implements Reader.
func (c *connection) Inspect(ctx context.Context, address, fingerprint string) (Unconfigured, error) {
	return Inspect(ctx, address, fingerprint)
}

// Maintenance implements Reader.
func (c *connection) Maintenance(ctx context.Context, address string) (string, error) {
	found, err := Inspect(ctx, address, "")
	return found.UUID, err
}

// errNotPinned means that nobody has said which machine is meant.
var errNotPinned = errors.New("a machine config holds the secrets of its cluster, and goes to no machine whose certificate is not known by its fingerprint")

// Provision implements Writer.
func (c *connection) Provision(ctx context.Context, address, fingerprint string, config []byte) error {
	if fingerprint == "" {
		return errNotPinned
	}
	open, seen, err := unconfigured(ctx, address, fingerprint, c.guard)
	if err != nil {
		return err
	}
	defer open.client.Close() //nolint:errcheck // Nothing is under way any more.
	_, err = open.client.ApplyConfiguration(guard.With(ctx, c.guard), &machineapi.ApplyConfigurationRequest{
		Data: config, Mode: machineapi.ApplyConfigurationRequest_AUTO,
	})
	if err != nil {
		return seen.explain(address, err)
	}
	return nil
}
