// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// joinRoles are the roles of machines by how they are typed.
var joinRoles = map[string]pb.MachineRole{
	"controlplane": pb.MachineRole_MACHINE_ROLE_CONTROL_PLANE, "worker": pb.MachineRole_MACHINE_ROLE_WORKER,
}

// join is a machine that is to join, as the command line says it.
type join struct {
	request *pb.JoinMachineRequest
	role    string
	approve bool
	start   startFlags
}

func newJoinCommand(a *app) *cobra.Command {
	j := &join{request: &pb.JoinMachineRequest{}}
	cmd := &cobra.Command{
		Use:   "join --address ADDRESS --role ROLE",
		Short: "Make a machine in maintenance mode one of a cluster",
		Long: `Make a machine in maintenance mode one of a cluster.

The machine is asked who it is, and recorded. It waits for an approval, since it is given the secrets of the cluster: --approve does both, and
starts the operation that makes it join.

Nobody vouches for the certificate that a machine serves in maintenance mode. The machine writes the fingerprint of it on its console: give it
with --fingerprint, or compare it when you are asked. Each boot makes another one; then run the command again.`,
		Example: `  ichor machine join --cluster prod-1 --address 10.0.0.14 --role worker --hostname worker-4
  ichor machine join --cluster prod-1 --address 10.0.0.4 --role controlplane --install-disk /dev/nvme0n1 \
    --fingerprint "$FINGERPRINT" --approve --yes --follow`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := j.check(); err != nil {
				return err
			}
			return a.connected(func(cmd *cobra.Command, _ []string) error { return a.join(cmd.Context(), j) })(cmd, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&j.request.Address, "address", "", "the IP address at which the machine answers in maintenance mode")
	flags.StringVar(&j.role, "role", "", "what it becomes: controlplane or worker")
	flags.StringVar(&j.request.Fingerprint, "fingerprint", "", "of the machine's certificate, as it is on its console")
	flags.StringVar(&j.request.InstallDisk, "install-disk", "", "the disk for Talos, such as /dev/sda (default: the only one)")
	flags.StringVar(&j.request.Hostname, "hostname", "", "what the machine is called (default: Talos makes a name)")
	flags.BoolVar(&j.approve, "approve", false, "approve the machine, and start the operation that makes it join")
	j.start.addTo(cmd)
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"controlplane", "worker"}, cobra.ShellCompDirectiveNoFileComp)) // The flag was made just now.
	return cmd
}

// check says what is wrong with the command line.
func (j *join) check() error {
	role, known := joinRoles[strings.ToLower(j.role)]
	switch {
	case j.request.GetAddress() == "":
		return usageError("--address is needed: the IP address at which the machine answers in maintenance mode")
	case !known:
		return usageError("--role %q is not one of controlplane, worker", j.role)
	case j.request.GetFingerprint() == "" && j.start.yes && !j.start.dryRun:
		return usageError("--yes goes with --fingerprint: without it somebody has to compare the certificate with the machine's console")
	}
	j.request.Role = role
	return nil
}

// join looks at the machine, lets somebody compare its certificate, records it and, with --approve, has it join.
func (a *app) join(ctx context.Context, j *join) (err error) {
	if j.request.Cluster, err = a.clusterRef(); err != nil {
		return err
	}
	looked := &pb.JoinMachineRequest{
		Cluster: j.request.GetCluster(), Address: j.request.GetAddress(), Role: j.request.GetRole(), Fingerprint: j.request.GetFingerprint(),
		InstallDisk: j.request.GetInstallDisk(), Hostname: j.request.GetHostname(), ValidateOnly: true,
	}
	seen, err := call(ctx, a, a.connection.clusters.JoinMachine, looked)
	if err != nil {
		return fmt.Errorf("looking at the machine at %s: %w", looked.GetAddress(), err)
	}
	if a.forPeople() {
		fmt.Fprint(a.Out, describeUnconfigured(looked.GetAddress(), seen.GetFound()))
	}
	if j.start.dryRun {
		return nil
	}
	if j.request.GetFingerprint() == "" {
		if err := a.vouch(ctx, seen.GetFound()); err != nil {
			return err
		}
		j.request.Fingerprint = seen.GetFound().GetFingerprint()
	}
	recorded, err := call(ctx, a, a.connection.clusters.JoinMachine, j.request)
	if err != nil {
		return fmt.Errorf("recording the machine at %s: %w", looked.GetAddress(), err)
	}
	return a.recorded(ctx, j, recorded.GetMachine())
}

// vouch asks whether the certificate is that of the machine that is meant.
func (a *app) vouch(ctx context.Context, found *pb.UnconfiguredMachine) error {
	return a.ask(ctx, fmt.Sprintf("Does the console of the machine show the fingerprint %s?", found.GetFingerprint()), false)
}

// recorded goes on with a machine that is recorded.
func (a *app) recorded(ctx context.Context, j *join, machine *pb.Machine) error {
	name := machine.GetRef().GetName()
	if !j.approve {
		return a.did(a.item(machine, machineResource, machine.GetRef()),
			"Machine %s is recorded, and waits for an approval: ichor machine approve %[1]s; then: ichor node join %[1]s", name)
	}
	if _, err := call(ctx, a, a.connection.clusters.ApproveMachine, &pb.ApproveMachineRequest{Ref: machine.GetRef()}); err != nil {
		return fmt.Errorf("approving machine %s, which is recorded: %w", name, err)
	}
	return a.start(ctx, &pb.OperationOrder{
		Cluster: machine.GetCluster(), Kind: pb.OperationKind_OPERATION_KIND_NODE,
		Parameters: &pb.OperationParameters{Parameters: &pb.OperationParameters_Node{Node: &pb.NodeParameters{Machine: name, Action: "Join"}}},
	}, j.start)
}

// describeUnconfigured shows a machine in maintenance mode.
func describeUnconfigured(address string, found *pb.UnconfiguredMachine) string {
	var text strings.Builder
	fmt.Fprintf(&text, "Machine at %s, in maintenance mode:\n", address)
	for _, line := range [][2]string{
		{"UUID", found.GetUuid()}, {"Talos", found.GetTalosVersion() + ", platform " + cmp.Or(found.GetPlatform(), "not known")},
		{"Fingerprint", found.GetFingerprint()}, {"Addresses", strings.Join(found.GetAddresses(), ", ")},
	} {
		fmt.Fprintf(&text, "  %-12s %s\n", line[0], line[1])
	}
	for _, disk := range found.GetDisks() {
		note := ""
		if disk.GetPath() == found.GetSystemDisk() {
			note = ", has Talos on it"
		}
		fmt.Fprintf(&text, "  %-12s %s %s (%.1f GB%s)\n", "Disk", disk.GetPath(), disk.GetModel(), float64(disk.GetSize())/1e9, note)
	}
	return text.String()
}
