// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"github.com/siderolabs/talos/pkg/machinery/config"

	"ichor.maesh.dev/hub/test/sim/control"
	"ichor.maesh.dev/hub/test/sim/machine"
)

// Node is one simulated machine.
type Node struct {
	machine *machine.Machine
	cluster *Cluster
}

// Name is the node's name.
func (n *Node) Name() string { return n.machine.Name }

// Address is the node's IP.
func (n *Node) Address() string { return n.machine.Address }

// UUID is the hardware's UUID.
func (n *Node) UUID() string { return n.machine.UUID }

// ControlPlane says whether the node is one.
func (n *Node) ControlPlane() bool { return n.machine.ControlPlane }

// State is a snapshot of the machine.
func (n *Node) State() machine.State { return n.machine.State() }

// Config returns the machine config in force, and the one that the next boot brings in force.
func (n *Node) Config() (active, persistent config.Provider) { return n.machine.Config() }

// Fingerprint is that of the certificate which a machine in maintenance mode serves, as Talos writes it on the console.
func (n *Node) Fingerprint() (string, error) { return n.cluster.talos.Fingerprint(n.Name()) }

// PowerOff cuts the power.
func (n *Node) PowerOff() { n.machine.PowerOff() }

// PowerOn boots a machine that is off.
func (n *Node) PowerOn() { n.machine.PowerOn() }

func (n *Node) describe(leader bool) control.Node {
	state := n.State()
	stage := state.Stage.String()
	if !state.APIUp {
		stage = "down"
	}
	fingerprint, _ := n.Fingerprint() // It has none outside of maintenance mode.
	return control.Node{
		Fingerprint: fingerprint,
		Cluster:     n.machine.Cluster, Name: n.Name(), Address: n.Address(), ControlPlane: n.ControlPlane(), Leader: leader,
		Stage: stage, Ready: state.Ready, Version: state.Running.Version, Schematic: state.Running.Schematic,
		Next: state.Next.Version, UpgradePending: state.UpgradePending, BootID: state.BootID,
	}
}
