// SPDX-License-Identifier: Apache-2.0

package carotation

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	rotationplan "ichor.maesh.dev/hub/controllers/operation/kind/carotation/plan"
	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// proof is what a machine has to show after a pass.
type proof struct {
	// as is a client that the machine has to accept, and whose authorities have to have signed what the machine shows.
	as credentials.Direct

	// not is a client that the machine has to refuse; an empty one asks for no refusal.
	not credentials.Direct

	// kubelet are the authorities one of which has to have signed the client certificate of the kubelet.
	kubelet [][]byte

	// unready asks of no control plane that its Node is Ready.
	unready bool
}

// proofOf is the proof of a pass. In the first one machines are still signed by the old authority, and have to accept clients of the new one;
// from the swap on a client that trusts the new one alone has to do.
func proofOf(pass rotationplan.Pass, m Material) proof {
	oldOnly, newOnly := [][]byte{m.Old.Certificate}, [][]byte{m.New.Certificate}
	switch pass {
	case rotationplan.Swap, rotationplan.AwaitCredentials:
		return proof{as: credentials.Direct{Trust: newOnly, Client: m.NewClient}, kubelet: m.known()}
	case rotationplan.DropWorkers, rotationplan.Drop:
		return proof{
			as: credentials.Direct{Trust: newOnly, Client: m.NewClient}, not: credentials.Direct{Trust: newOnly, Client: m.OldProof}, kubelet: newOnly,
		}
	case rotationplan.BackSwap, rotationplan.BackTrust, rotationplan.BackCredentials:
		return proof{as: credentials.Direct{Trust: oldOnly, Client: m.OldProof}, kubelet: m.known()}
	case rotationplan.BackAcceptWorkers, rotationplan.BackAccept:
		return proof{
			as: credentials.Direct{Trust: oldOnly, Client: m.OldProof}, not: credentials.Direct{Trust: oldOnly, Client: m.NewClient}, kubelet: oldOnly,
		}
	case rotationplan.Accept, rotationplan.Trust:
	}
	return proof{as: credentials.Direct{Trust: m.known(), Client: m.NewClient}, kubelet: m.known()}
}

// unproven says what a machine does not show yet of a pass; nothing if it shows all.
func (e *Executor) unproven(
	ctx context.Context, scope kind.Scope, machine *v1alpha1.TalosMachine, own talos.Config, of v1alpha1.CAAuthority, wanted proof,
) string {
	if of == v1alpha1.TalosCA {
		if missing := e.answers(ctx, scope, machine, wanted.as); missing != "" {
			return missing
		}
		return e.refuses(ctx, scope, machine, wanted.not)
	}
	if machine.Spec.Role == v1alpha1.ControlPlaneRole {
		if missing := e.serves(ctx, scope, machine, own, wanted); missing != "" {
			return missing
		}
	}
	return e.kubelet(ctx, scope, machine, wanted)
}

// answers says why the machine at its own address does not prove to a client to be itself; nothing if it does.
func (e *Executor) answers(ctx context.Context, scope kind.Scope, machine *v1alpha1.TalosMachine, as credentials.Direct) string {
	facts, err := e.prover.Talos(ctx, scope.Cluster, machine.Spec.Address, as)
	switch {
	case err != nil:
		return "its Talos API: " + talos.Trouble(err)
	case facts.UUID != machine.Spec.UUID:
		return fmt.Sprintf("another machine answers at %s, of UUID %q", machine.Spec.Address, facts.UUID)
	}
	return ""
}

// refuses says that a machine still accepts a client; nothing if it refuses it.
func (e *Executor) refuses(ctx context.Context, scope kind.Scope, machine *v1alpha1.TalosMachine, not credentials.Direct) string {
	if not.Client.Empty() {
		return ""
	}
	switch _, err := e.prover.Talos(ctx, scope.Cluster, machine.Spec.Address, not); {
	case err == nil:
		return "its Talos API still accepts what the dropped authority has signed"
	case !talos.Rejected(err):
		return "its Talos API: " + talos.Trouble(err)
	}
	return ""
}

// serves says what the API server of a control plane does not show; nothing if it shows all.
func (e *Executor) serves(ctx context.Context, scope kind.Scope, machine *v1alpha1.TalosMachine, own talos.Config, wanted proof) string {
	port, err := machineconfig.APIServerPort(own.Active)
	if err != nil {
		return err.Error()
	}
	address := net.JoinHostPort(machine.Spec.Address, strconv.Itoa(port))
	if _, err := e.prover.Kubernetes(ctx, scope.Cluster, address, wanted.as); err != nil {
		return fmt.Sprintf("its API server at %s: %s", address, kube.Trouble(err))
	}
	if wanted.not.Client.Empty() {
		return ""
	}
	switch _, err := e.prover.Kubernetes(ctx, scope.Cluster, address, wanted.not); {
	case err == nil:
		return fmt.Sprintf("its API server at %s still accepts what the dropped authority has signed", address)
	case !kube.Rejected(err):
		return fmt.Sprintf("its API server at %s: %s", address, kube.Trouble(err))
	}
	return ""
}

// kubeletCertificate is where a kubelet keeps its client certificate.
const kubeletCertificate = "/var/lib/kubelet/pki/kubelet-client-current.pem"

// kubelet says what the kubelet of a machine does not show: a client certificate of the authorities, and a Node that is Ready.
func (e *Executor) kubelet(ctx context.Context, scope kind.Scope, machine *v1alpha1.TalosMachine, wanted proof) string {
	reader, err := e.sequence.Talos.Reader(ctx, scope.Cluster)
	if err != nil {
		return "its kubelet: " + talos.Trouble(err)
	}
	certificate, err := reader.File(ctx, machine.Spec.Address, kubeletCertificate)
	switch {
	case err != nil:
		return "the client certificate of its kubelet: " + talos.Trouble(err)
	case !credentials.SignedBy(certificate, wanted.kubelet...):
		return "its kubelet has a client certificate of the dropped authority still"
	case wanted.unready && machine.Spec.Role == v1alpha1.ControlPlaneRole:
		return ""
	}
	return e.nodeReady(ctx, scope, machine)
}

func (e *Executor) nodeReady(ctx context.Context, scope kind.Scope, machine *v1alpha1.TalosMachine) string {
	reader, err := e.sequence.Kube.Reader(ctx, scope.Cluster)
	if err != nil {
		return "the Kubernetes API of the cluster cannot be read: " + kube.Trouble(err)
	}
	switch node, err := reader.Node(ctx, machine.Status.NodeName); {
	case err != nil:
		return "the Kubernetes API of the cluster cannot be read: " + kube.Trouble(err)
	case node == nil:
		return fmt.Sprintf("its Node %s is not there", machine.Status.NodeName)
	case !node.Ready:
		return fmt.Sprintf("its Node %s is not Ready", node.Name)
	}
	return ""
}
