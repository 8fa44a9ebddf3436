// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"connectrpc.com/connect"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/cluster/identity"
	nodeplan "ichor.maesh.dev/hub/controllers/operation/kind/node/plan"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/controllers/targets"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/providers/talos"
)

// inspectTime bounds a look at a machine in maintenance mode.
const inspectTime = 10 * time.Second

// uuidCharacters are how many characters of a UUID tell machines of the same name apart.
const uuidCharacters = 5

// What the definition of a TalosMachine lets through.
var (
	fingerprints = regexp.MustCompile(`^[A-Za-z0-9+/]{43}=$`)
	diskPaths    = regexp.MustCompile(`^/dev/[A-Za-z0-9/._:-]+$`)
)

// Inspector asks a machine in maintenance mode who it is; an empty fingerprint takes any certificate.
type Inspector func(ctx context.Context, address, fingerprint string) (talos.Unconfigured, error)

// Join is a machine in maintenance mode that is to become one of a cluster.
type Join struct {
	// Cluster is which one.
	Cluster client.ObjectKey

	// Address is where the machine answers, Role what it becomes.
	Address string
	Role    v1alpha1.MachineRole

	// Spec is the request as the TalosMachine has it.
	Spec v1alpha1.JoinSpec

	// ValidateOnly writes nothing.
	ValidateOnly bool
}

// JoinMachine implements the ClusterService.
func (s *Server) JoinMachine(ctx context.Context, request *connect.Request[pb.JoinMachineRequest]) (*connect.Response[pb.JoinMachineResponse], error) {
	in, err := s.joinOf(request.Msg)
	if err != nil {
		return nil, problem(err)
	}
	service, err := s.writer(ctx)
	if err != nil {
		return nil, problem(err)
	}
	found, machine, changed, err := service.Join(ctx, in)
	if err != nil {
		return nil, problem(err)
	}
	answer := &pb.JoinMachineResponse{Found: unconfigured(found), Changed: changed}
	if !in.ValidateOnly {
		answer.Machine = service.machine(ctx, machine)
	}
	return connect.NewResponse(answer), nil
}

func unconfigured(found talos.Unconfigured) *pb.UnconfiguredMachine {
	message := &pb.UnconfiguredMachine{
		Uuid: found.UUID, Fingerprint: found.Fingerprint, TalosVersion: found.Version, Platform: found.Platform, SystemDisk: found.SystemDisk,
		Addresses: found.Addresses,
	}
	for _, disk := range found.Disks {
		message.Disks = append(message.Disks, &pb.MachineDisk{Path: disk.Path, Model: disk.Model, Size: disk.Size})
	}
	return message
}

var joinRoles = map[pb.MachineRole]v1alpha1.MachineRole{
	pb.MachineRole_MACHINE_ROLE_CONTROL_PLANE: v1alpha1.ControlPlaneRole, pb.MachineRole_MACHINE_ROLE_WORKER: v1alpha1.WorkerRole,
}

// joinOf reads a request. It asks nobody.
func (s *Server) joinOf(request *pb.JoinMachineRequest) (Join, error) {
	key, err := s.key("cluster", request.GetCluster())
	if err != nil {
		return Join{}, err
	}
	in := Join{
		Cluster: key, Address: request.GetAddress(), Role: joinRoles[request.GetRole()], ValidateOnly: request.GetValidateOnly(),
		Spec: v1alpha1.JoinSpec{Fingerprint: request.GetFingerprint(), InstallDisk: request.GetInstallDisk(), Hostname: request.GetHostname()},
	}
	return in, in.check()
}

func (in Join) check() error {
	_, err := netip.ParseAddr(in.Address)
	switch {
	case err != nil:
		return &InvalidError{Field: "address", Value: in.Address, Allowed: "an IP address at which the machine answers in maintenance mode"}
	case in.Role == "":
		return &InvalidError{Field: "role", Allowed: "ControlPlane or Worker"}
	case in.Spec.Fingerprint != "" && !fingerprints.MatchString(in.Spec.Fingerprint):
		return &InvalidError{Field: "fingerprint", Value: in.Spec.Fingerprint, Allowed: "SHA-256 of the public key of the machine's certificate in base64, 44 characters, as it is on the machine's console"}
	case in.Spec.Fingerprint == "" && !in.ValidateOnly:
		return &InvalidError{Field: "fingerprint", Allowed: "is needed: a machine config holds the secrets of the cluster, and goes to no machine that nobody has vouched for"}
	case in.Spec.InstallDisk != "" && !diskPaths.MatchString(in.Spec.InstallDisk):
		return &InvalidError{Field: "install_disk", Value: in.Spec.InstallDisk, Allowed: "a path such as /dev/sda"}
	}
	if problems := validation.IsDNS1123Subdomain(in.Spec.Hostname); in.Spec.Hostname != "" && len(problems) > 0 {
		return &InvalidError{Field: "hostname", Value: in.Spec.Hostname, Allowed: problems[0]}
	}
	return nil
}

// Join records that a machine in maintenance mode is to become one of a cluster. The machine is asked as it is now: what is recorded is its own
// UUID, read over the connection whose certificate was vouched for. Nobody makes the hub connect anywhere who may not have machines join.
func (s *Service) Join(ctx context.Context, in Join) (found talos.Unconfigured, machine *v1alpha1.TalosMachine, changed bool, err error) {
	machine = &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: in.Cluster.Namespace}}
	if err := s.mayWrite(ctx, "create", machinesResource, machine); err != nil {
		return found, nil, false, err
	}
	order := v1alpha1.TalosOperationSpec{Kind: v1alpha1.NodeKind, Node: &v1alpha1.NodeParameters{Action: v1alpha1.JoinAction}}
	if err := s.mayStart(ctx, in.Cluster.Namespace, order, false); err != nil {
		return found, nil, false, err
	}
	facts, err := s.Facts(ctx, in.Cluster)
	if err != nil {
		return found, nil, false, err
	}
	if found, err = s.inspect(ctx, in); err != nil {
		return found, nil, false, err
	}
	known, err := recordedJoin(facts, in, found)
	if err != nil {
		return found, nil, false, err
	}
	if err := nameFree(facts, in, known); err != nil || in.ValidateOnly {
		return found, nil, false, err
	}
	if known != nil {
		changed, err = s.joinAgain(ctx, known, in)
		return found, known, changed, err
	}
	machine, err = s.recordJoin(ctx, facts, in, found)
	return found, machine, err == nil, err
}

func (s *Service) inspect(ctx context.Context, in Join) (talos.Unconfigured, error) {
	ask := s.Inspector
	if ask == nil {
		ask = talos.Inspect
	}
	asked, cancel := context.WithTimeout(ctx, inspectTime)
	defer cancel()
	found, err := ask(asked, in.Address, in.Spec.Fingerprint)
	var other *talos.FingerprintError
	switch {
	case errors.As(err, &other):
		return found, &InvalidError{Field: "fingerprint", Value: in.Spec.Fingerprint, Allowed: fmt.Sprintf("the machine at %s serves %s: compare it with the machine's console; each boot makes another one", in.Address, other.Got)}
	case err != nil:
		return found, &StateError{What: fmt.Sprintf("no machine in maintenance mode answers at %s: %s", in.Address, talos.Trouble(err)), Help: "boot it from an image of Talos, and look at its console for its address"}
	case found.UUID == "":
		return found, &StateError{What: fmt.Sprintf("the machine at %s does not tell its UUID", in.Address), Help: "the hub tells machines apart by it"}
	}
	return found, nil
}

// recordedJoin is the record of a machine that is to join already; nil if there is none.
func recordedJoin(facts targets.Facts, in Join, found talos.Unconfigured) (*v1alpha1.TalosMachine, error) {
	refuse := func(message, help string) error {
		return &RefusedError{Refusals: []plan.Refusal{{Gate: v1alpha1.MachineKnownGate, Message: message, Help: help}}}
	}
	if facts.Adopted() {
		return nil, refuse(fmt.Sprintf("the machines of cluster %s are made by Cluster API's providers", in.Cluster.Name), "scale its control plane or its MachineDeployment")
	}
	var known *v1alpha1.TalosMachine
	for i := range facts.Machines {
		m := &facts.Machines[i]
		same := strings.EqualFold(m.Spec.UUID, found.UUID)
		if !same && m.Spec.Address != in.Address {
			continue
		}
		if other := differs(m, in, found, same); other != "" {
			return nil, refuse(fmt.Sprintf("TalosMachine %s is recorded with UUID %s at %s as %s: %s", m.Name, m.Spec.UUID, m.Spec.Address, m.Spec.Role, other),
				fmt.Sprintf("if that machine is gone or was reset: kubectl delete talosmachine -n %s %s", m.Namespace, m.Name))
		}
		known = m
	}
	return known, nil
}

// differs says what of a record is not what is asked for, and cannot become so.
func differs(m *v1alpha1.TalosMachine, in Join, found talos.Unconfigured, same bool) string {
	switch {
	case !same:
		return fmt.Sprintf("the machine that answers at %s has UUID %s", in.Address, found.UUID)
	case !m.Joining():
		return "it is one of the cluster"
	case m.Spec.Role != in.Role:
		return fmt.Sprintf("its role stays, and %s is asked for", in.Role)
	case m.Spec.Address != in.Address && m.HalfJoined():
		return fmt.Sprintf("it was given its machine config there, and %s is asked for", in.Address)
	}
	return ""
}

// nameFree refuses the name of another machine: Talos would put the new one in its place.
func nameFree(facts targets.Facts, in Join, known *v1alpha1.TalosMachine) error {
	own := ""
	if known != nil {
		own = known.Name
	}
	if other := nodeplan.Named(facts.Machines, own, in.Spec.Hostname); other != nil {
		return &InvalidError{Field: "hostname", Value: in.Spec.Hostname, Allowed: fmt.Sprintf(
			"a name that nobody has: TalosMachine %s is called %s, and Talos would put the new machine in its place", other.Name, cmp.Or(other.Status.NodeName, in.Spec.Hostname))}
	}
	return nil
}

// joinAgain brings what is asked for now, such as the certificate of another boot, or the address of another lease. What is not said stays.
func (s *Service) joinAgain(ctx context.Context, machine *v1alpha1.TalosMachine, in Join) (changed bool, err error) {
	before := machine.DeepCopy()
	join := machine.Spec.Join
	join.Fingerprint = cmp.Or(in.Spec.Fingerprint, join.Fingerprint)
	join.InstallDisk = cmp.Or(in.Spec.InstallDisk, join.InstallDisk)
	join.Hostname = cmp.Or(in.Spec.Hostname, join.Hostname)
	machine.Spec.Address = in.Address
	if *join == *before.Spec.Join && machine.Spec.Address == before.Spec.Address {
		return false, nil
	}
	if err := s.Client.Patch(ctx, machine, client.MergeFrom(before)); err != nil {
		return false, fmt.Errorf("changing how machine %s joins: %w", machine.Name, err)
	}
	return true, nil
}

func (s *Service) recordJoin(ctx context.Context, facts targets.Facts, in Join, found talos.Unconfigured) (*v1alpha1.TalosMachine, error) {
	short := strings.ToLower(found.UUID[:min(uuidCharacters, len(found.UUID))])
	name := in.Cluster.Name + "-" + cmp.Or(identity.Label(in.Spec.Hostname), short)
	machine := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: in.Cluster.Namespace, Labels: map[string]string{clusterLabel: in.Cluster.Name}, OwnerReferences: []metav1.OwnerReference{facts.Owner()},
		},
		Spec: v1alpha1.TalosMachineSpec{
			ClusterName: in.Cluster.Name, Role: in.Role, Address: in.Address, UUID: found.UUID, Approval: v1alpha1.ApprovalPending, Join: &in.Spec,
		},
	}
	for _, machine.Name = range []string{name, name + "-" + short} {
		switch err := s.Client.Create(ctx, machine); {
		case err == nil:
			return machine, nil
		case !apierrors.IsAlreadyExists(err):
			return nil, fmt.Errorf("recording machine %s: %w", machine.Name, err)
		}
	}
	return nil, &ExistsError{What: fmt.Sprintf("TalosMachines %s and %s-%s are there already", name, name, short), Help: "give the machine another --hostname"}
}
