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

// nodeAction is one action on a machine, and how it is said on a command line.
type nodeAction struct {
	name, action, short, long string

	// planned is the name under "operation plan", where that of the action is a cluster's.
	planned string

	// example follows the name of the command.
	example string

	// flags are those of the action, beside those of all.
	flags []nodeFlag

	// anywhere actions may be about every etcd member instead of one machine.
	anywhere bool

	// bypass says that the action asks gates that may be bypassed.
	bypass bool
}

// nodeFlag is a flag of an action: its values, as they are typed, and what the protocol calls them.
type nodeFlag struct {
	name, usage string
	values      []string
	set         func(node *pb.NodeParameters, value string)
}

// nodeWords are the values of the protocol by how they are typed.
var nodeWords = map[string]string{
	"default": "Default", "powercycle": "PowerCycle", "force": "Force", "keep": "Keep", "disarm": "Disarm", "graceful": "Graceful", "forced": "Forced",
	"system": "System", "user-volumes": "UserVolumes", "reboot": "Reboot", "power-off": "PowerOff",
}

// resetOf are the parameters of a reset, made when one of them is given.
func resetOf(node *pb.NodeParameters) *pb.ResetParameters {
	if node.GetReset_() == nil {
		node.Reset_ = &pb.ResetParameters{}
	}
	return node.GetReset_()
}

var nodeActions = []nodeAction{
	{
		name: "reboot", action: "Reboot", short: "Drain and reboot a machine", example: "worker-1 --cluster prod-1", bypass: true,
		long: "With --mode force nothing is drained and no service is stopped in good order: it is for machines that hang.",
		flags: []nodeFlag{{
			name: "mode", usage: "how to reboot: default, powercycle or force", values: []string{"default", "powercycle", "force"},
			set: func(node *pb.NodeParameters, value string) { node.RebootMode = nodeWords[value] },
		}},
	},
	{
		name: "shutdown", planned: "node-shutdown", action: "Shutdown", short: "Drain a machine and power it off", example: "worker-1 --cluster prod-1 --confirm prod-1-worker-1", bypass: true,
		long: "The machine stays off until somebody powers it on, and its node stays cordoned until somebody uncordons it.",
	},
	{
		name: "restart-service", action: "RestartService", short: "Restart the kubelet or an extension's service", example: "worker-1 --service kubelet",
		long: "Talos restarts no other services on order; etcd restarts with its machine.",
		flags: []nodeFlag{{
			name: "service", usage: "the service: kubelet, or ext- and the name of an extension's service",
			set: func(node *pb.NodeParameters, value string) { node.Service = value },
		}},
	},
	{
		name: "etcd-defrag", action: "EtcdDefrag", short: "Defragment etcd: every member, or that of one machine", example: "--cluster prod-1 --alarms disarm",
		long:     "Without MACHINE every member of the cluster is defragmented, one at a time and the leader last. A member answers nothing meanwhile.",
		anywhere: true, bypass: true,
		flags: []nodeFlag{{
			name: "alarms", usage: "what becomes of etcd's alarm about space once every member is defragmented: keep or disarm", values: []string{"keep", "disarm"},
			set: func(node *pb.NodeParameters, value string) { node.Alarms = nodeWords[value] },
		}},
	},
	{
		name: "etcd-forfeit-leadership", action: "EtcdForfeitLeadership", short: "Move etcd's leadership to another member", example: "cp-1 --cluster prod-1",
		long: "Where the machine's member does not lead there is nothing to do.",
	},
	{
		name: "join", action: "Join", short: "Make a machine in maintenance mode one of its cluster", example: "prod-1-worker-9 --follow",
		long: `The machine was recorded by "ichor machine join" and approved. It is given its machine config, installs Talos and boots; a control plane joins
etcd, as a learner first, and nothing else changes etcd's members until it votes.`,
	},
	{
		name: "reset", action: "Reset", short: "Wipe a machine", example: "worker-1 --cluster prod-1 --confirm prod-1-worker-1", bypass: true,
		long: `The machine is drained and its etcd member leaves before anything is wiped; then it boots into maintenance mode. Its TalosMachine and
its node stay behind. What is wiped is gone for good.`,
		flags: []nodeFlag{
			{
				name: "manner", usage: "how it leaves: graceful, or forced where it cannot", values: []string{"graceful", "forced"},
				set: func(node *pb.NodeParameters, value string) { resetOf(node).Manner = nodeWords[value] },
			},
			{
				name: "wipe", usage: "what is wiped: system, user-volumes, or both with a comma between (default system)", values: []string{"system", "user-volumes"},
				set: func(node *pb.NodeParameters, value string) {
					resetOf(node).Wipe = append(resetOf(node).Wipe, nodeWords[value])
				},
			},
			{
				name: "after", usage: "what it does then: reboot or power-off (default reboot)", values: []string{"reboot", "power-off"},
				set: func(node *pb.NodeParameters, value string) { resetOf(node).After = nodeWords[value] },
			},
		},
	},
}

func newNodeCommand(a *app) *cobra.Command {
	var children []*cobra.Command
	for _, o := range a.nodeOrders("ichor node", false) {
		children = append(children, a.startCommand(o))
	}
	return group("node", "Act on one machine, or on etcd's members", nil, children...)
}

// nodeOrders are the orders of kind node; parent is the command that they stand under, which may be the one that only plans.
func (a *app) nodeOrders(parent string, planned bool) []*order {
	orders := make([]*order, len(nodeActions))
	for i, action := range nodeActions {
		if planned {
			action.name = cmp.Or(action.planned, action.name)
		}
		orders[i] = a.nodeOrder(action, parent)
	}
	return orders
}

func (a *app) nodeOrder(action nodeAction, parent string) *order {
	node := &pb.NodeParameters{Action: action.action}
	wanted := &pb.OperationOrder{
		Kind: pb.OperationKind_OPERATION_KIND_NODE, Parameters: &pb.OperationParameters{Parameters: &pb.OperationParameters_Node{Node: node}},
	}
	var bypass overrides
	given := make([]string, len(action.flags))
	o := &order{
		use: action.name + " MACHINE", short: action.short, names: a.machineNames,
		long:    fmt.Sprintf("%s.\n\n%s\n\nMACHINE is the name of its node or of its TalosMachine.", action.short, action.long),
		example: strings.Join([]string{" ", parent, action.name, action.example}, " "),
		flags: func(cmd *cobra.Command) {
			for i, flag := range action.flags {
				cmd.Flags().StringVar(&given[i], flag.name, "", flag.usage)
				_ = cmd.RegisterFlagCompletionFunc(flag.name, cobra.FixedCompletions(flag.values, cobra.ShellCompDirectiveNoFileComp)) // The flag was made just now.
			}
			if action.bypass {
				bypass.addTo(cmd)
			}
		},
		check: func() (err error) {
			if err := readNodeFlags(action, given, node); err != nil {
				return err
			}
			wanted.Overrides, err = bypass.parse()
			return err
		},
		make: func(ctx context.Context, args []string) (*pb.OperationOrder, error) {
			return a.locateNode(ctx, wanted, node, args)
		},
	}
	if action.anywhere {
		o.use, o.args = action.name+" [MACHINE]", cobra.MaximumNArgs(1)
	}
	return o
}

// locateNode finds the machine that an order names; without one it is about the cluster.
func (a *app) locateNode(ctx context.Context, wanted *pb.OperationOrder, node *pb.NodeParameters, args []string) (_ *pb.OperationOrder, err error) {
	if len(args) == 0 {
		wanted.Cluster, err = a.clusterRef()
		return wanted, err
	}
	machine, err := a.machine(ctx, args[0])
	if err != nil {
		return nil, err
	}
	wanted.Cluster, node.Machine = machine.GetCluster(), machine.GetRef().GetName()
	return wanted, nil
}

// readNodeFlags reads the flags that were given. Values that nobody knows are refused here, and the name of a service is the hub's to judge.
func readNodeFlags(action nodeAction, given []string, node *pb.NodeParameters) error {
	node.Reset_ = nil
	for i, flag := range action.flags {
		if given[i] == "" && flag.name != "service" {
			continue
		}
		values := []string{given[i]}
		if flag.name == "wipe" {
			values = strings.Split(given[i], ",")
		}
		for _, value := range values {
			if err := checkNodeFlag(flag, value); err != nil {
				return err
			}
			flag.set(node, value)
		}
	}
	return nil
}

func checkNodeFlag(flag nodeFlag, value string) error {
	if len(flag.values) == 0 {
		if value == "" {
			return usageError("--%s is needed: %s", flag.name, flag.usage)
		}
		return nil
	}
	for _, known := range flag.values {
		if value == known {
			return nil
		}
	}
	return usageError("--%s %q is not one of %s", flag.name, value, strings.Join(flag.values, ", "))
}

// nodePurpose says what an order of kind node is for.
func nodePurpose(node *pb.NodeParameters) string {
	text := nodeVerb(node)
	if machine := node.GetMachine(); machine != "" {
		text += " of " + machine
	} else {
		text += " of every member"
	}
	var details []string
	for _, value := range []string{
		node.GetRebootMode(), node.GetService(), node.GetAlarms(), node.GetReset_().GetManner(), strings.Join(node.GetReset_().GetWipe(), "+"), node.GetReset_().GetAfter(),
		node.GetRemove().GetManner(),
	} {
		if value != "" {
			details = append(details, strings.ToLower(value))
		}
	}
	if len(details) == 0 {
		return text
	}
	return text + " (" + strings.Join(details, ", ") + ")"
}

// nodeVerb is an action in words.
func nodeVerb(node *pb.NodeParameters) string {
	for _, action := range nodeActions {
		if action.action == node.GetAction() {
			return action.name
		}
	}
	return strings.ToLower(node.GetAction())
}
