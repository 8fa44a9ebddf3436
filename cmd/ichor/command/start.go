// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// order is what somebody wants done, and how they say it on a command line.
type order struct {
	use, short, long, example string

	// flags adds the flags of this kind of order.
	flags func(*cobra.Command)

	// make reads the command line. Nothing is asked before check has found it right.
	check func() error
	make  func(ctx context.Context, args []string) (*pb.OperationOrder, error)

	// names completes the argument; nil if there is nothing to complete.
	names func(context.Context, string) ([]string, error)

	// args says how many arguments there are; nil is one.
	args cobra.PositionalArgs
}

// startFlags are the flags of every command that starts an operation.
type startFlags struct {
	follow, yes, dryRun bool
	confirm, key        string
}

func (f *startFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.follow, "follow", false, "follow the operation until it ends")
	flags.BoolVar(&f.yes, "yes", false, "do not ask for a confirmation")
	flags.StringVar(&f.confirm, "confirm", "", "the name that has to be typed where --yes is not enough")
	flags.BoolVar(&f.dryRun, "dry-run", false, "show the plan, check everything, and change nothing")
	flags.StringVar(&f.key, "idempotency-key", "", "makes the same command, given again, one operation (default: a new one each time)")
}

// overrides are the gates that --override names.
type overrides struct{ texts []string }

func (o *overrides) addTo(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&o.texts, "override", nil,
		"bypass a gate that allows it, as GATE=REASON; needs the right to override, and is kept in the audit; may be given several times")
}

func (o *overrides) parse() ([]*pb.GateOverride, error) {
	var parsed []*pb.GateOverride
	for _, text := range o.texts {
		gate, reason, _ := strings.Cut(text, "=")
		if gate == "" || strings.TrimSpace(reason) == "" {
			return nil, usageError("--override %q is not GATE=REASON", text)
		}
		if slices.ContainsFunc(parsed, func(other *pb.GateOverride) bool { return other.GetGate() == gate }) {
			return nil, usageError("--override %s is there twice", gate)
		}
		parsed = append(parsed, &pb.GateOverride{Gate: gate, Reason: strings.TrimSpace(reason)})
	}
	return parsed, nil
}

// startCommand starts an order.
func (a *app) startCommand(o *order) *cobra.Command {
	var start startFlags
	cmd := a.orderCommand(o, func(ctx context.Context, wanted *pb.OperationOrder) error { return a.start(ctx, wanted, start) })
	start.addTo(cmd)
	return cmd
}

// orderCommand reads an order, and runs something with it.
func (a *app) orderCommand(o *order, run func(context.Context, *pb.OperationOrder) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: o.use, Short: o.short, Long: o.long, Example: o.example,
		Args:              arguments(o),
		ValidArgsFunction: a.complete(o.names),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return a.connected(func(cmd *cobra.Command, args []string) error {
				wanted, err := o.make(cmd.Context(), args)
				if err != nil {
					return err
				}
				return run(cmd.Context(), wanted)
			})(cmd, args)
		},
	}
	o.flags(cmd)
	return cmd
}

// arguments are how many arguments an order has.
func arguments(o *order) cobra.PositionalArgs {
	if o.args == nil {
		return cobra.ExactArgs(1)
	}
	return o.args
}

func newUpgradeCommand(a *app) *cobra.Command {
	return group("upgrade", "Upgrade a cluster, or the hub itself", nil,
		a.startCommand(a.talosOrder("talos VERSION", `  ichor upgrade talos v1.14.1 --cluster prod-1 --follow
  ichor upgrade talos 1.14.1 --cluster prod-1 --max-unavailable 25% --yes`)),
		a.startCommand(a.kubernetesOrder("kubernetes VERSION", `  ichor upgrade kubernetes v1.36.2 --cluster prod-1 --follow
  ichor upgrade kubernetes 1.36.2 --cluster prod-1 --max-unavailable 25% --yes`)),
		a.startCommand(a.ichorOrder("ichor VERSION", `  ichor upgrade ichor v0.2.0 --cluster prod-1 --follow
  ichor upgrade ichor 0.2.0 --cluster prod-1 --yes`)))
}

// newPlanCommand has a command for each order, that shows what it would do.
func newPlanCommand(a *app) *cobra.Command {
	var children []*cobra.Command
	orders := append([]*order{
		a.talosOrder("talos VERSION", "  ichor operation plan talos v1.14.1 --cluster prod-1"),
		a.kubernetesOrder("kubernetes VERSION", "  ichor operation plan kubernetes v1.36.2 --cluster prod-1"),
		a.ichorOrder("ichor VERSION", "  ichor operation plan ichor v0.2.0 --cluster prod-1"),
		a.configOrder("config", "  ichor operation plan config --cluster prod-1"),
		a.shutdownOrder("shutdown NAME", "  ichor operation plan shutdown prod-1 --no-snapshot"), a.powerOnOrder("start NAME", "  ichor operation plan start prod-1"),
		a.rotateKeysOrder("rotate-keys NAME", "  ichor operation plan rotate-keys prod-1 --key secretbox"),
		a.rotateCAOrder("rotate-ca NAME", "  ichor operation plan rotate-ca prod-1"),
		a.restoreOrder("restore NAME", "  ichor operation plan restore prod-1 --from prod-1-202611300300 --safety-snapshot"),
		a.removeOrder("remove MACHINE", "ichor operation plan remove"),
	}, a.nodeOrders("ichor operation plan", true)...)
	for _, o := range orders {
		o.short = "Show what this would do: " + o.short
		children = append(children, a.orderCommand(o, a.plan))
	}
	return group("plan", "Show what an operation would do, and what speaks against it", nil, children...)
}

// talosOrder upgrades Talos.
func (a *app) talosOrder(use, example string) *order {
	wanted := &pb.OperationOrder{Kind: pb.OperationKind_OPERATION_KIND_TALOS, Target: &pb.OperationTarget{}}
	var bypass overrides
	return &order{
		use: use, example: example,
		short: "Upgrade Talos on all machines of a cluster",
		long: `Upgrade Talos on all machines of a cluster.

Every machine pulls the image first. Then control planes go one at a time and the leader of etcd last, then workers, up to
--max-unavailable at once. Machines that are held are skipped.`,
		flags: func(cmd *cobra.Command) {
			flags := cmd.Flags()
			flags.StringVar(&wanted.MaxUnavailable, "max-unavailable", "", "how many workers may be away at once, as a number or a percentage (default 1)")
			flags.StringVar(&wanted.Target.SchematicId, "schematic", "", "schematic of the image factory (default: that of the cluster's spec, else each machine's own)")
			bypass.addTo(cmd)
		},
		check: func() (err error) {
			if wanted.Overrides, err = bypass.parse(); err != nil {
				return err
			}
			return checkMaxUnavailable(wanted.GetMaxUnavailable())
		},
		make: func(_ context.Context, args []string) (_ *pb.OperationOrder, err error) {
			wanted.Target.TalosVersion = args[0]
			wanted.Cluster, err = a.clusterRef()
			return wanted, err
		},
	}
}

// checkMaxUnavailable leaves the judgement to the hub, and only tells numbers and percentages from other words.
func checkMaxUnavailable(text string) error {
	digits := strings.TrimSuffix(text, "%")
	if text != "" && (digits == "" || strings.Trim(digits, "0123456789") != "") {
		return usageError("--max-unavailable %q is neither a number nor a percentage such as 25%%", text)
	}
	return nil
}

// plan shows what an order would do. Its exit code says whether it could be started.
func (a *app) plan(ctx context.Context, wanted *pb.OperationOrder) error {
	plan, err := a.planOf(ctx, wanted)
	if err != nil {
		return err
	}
	if err := a.showPlanAsResult(plan, wanted); err != nil {
		return err
	}
	return refusedBy(plan)
}

func (a *app) planOf(ctx context.Context, wanted *pb.OperationOrder) (*pb.Plan, error) {
	response, err := call(ctx, a, a.connection.operations.PlanOperation, &pb.PlanOperationRequest{Order: wanted})
	if err != nil {
		return nil, err
	}
	return response.GetPlan(), nil
}

func refusedBy(plan *pb.Plan) error {
	if len(plan.GetRefusals()) == 0 {
		return nil
	}
	return errors.New(refused(plan.GetRefusals()))
}

// start shows a plan, asks, and starts it.
func (a *app) start(ctx context.Context, wanted *pb.OperationOrder, flags startFlags) error {
	a.follows = flags.follow
	plan, err := a.planOf(ctx, wanted)
	switch {
	case err != nil:
		return err
	case plan.GetAtTarget():
		return a.nothingToDo(plan)
	}
	request := &pb.CreateOperationRequest{
		Order: wanted, ExpectedTarget: plan.GetTarget(), ValidateOnly: flags.dryRun, IdempotencyKey: flags.key,
	}
	if request.IdempotencyKey == "" {
		request.IdempotencyKey = a.key
	}
	if flags.dryRun {
		return a.dryRun(ctx, plan, request)
	}
	a.showPlan(a.Err, plan, wanted)
	if err := refusedBy(plan); err != nil {
		return err
	}
	if err := a.confirm(ctx, plan, wanted, flags); err != nil {
		return err
	}
	response, err := a.create(ctx, request)
	if err != nil {
		return err
	}
	if response.GetNothingToDo() {
		return a.nothingToDo(plan)
	}
	return a.started(ctx, response, flags.follow)
}

func (a *app) nothingToDo(plan *pb.Plan) error {
	if !a.forPeople() && a.output != outputName {
		if err := a.printDocumentLine(plan); err != nil {
			return err
		}
	}
	if plan.GetKind() == pb.OperationKind_OPERATION_KIND_ICHOR {
		a.remark("The hub is at the target already (%s): nothing to do.", targetWords(plan.GetTarget()))
		return nil
	}
	a.remark("Every machine of cluster %s that is not held is at the target already (%s): nothing to do.", plan.GetCluster().GetName(), targetWords(plan.GetTarget()))
	return nil
}

// dryRun shows the plan as the result, and has everything checked that a start would check.
func (a *app) dryRun(ctx context.Context, plan *pb.Plan, request *pb.CreateOperationRequest) error {
	if err := a.showPlanAsResult(plan, request.GetOrder()); err != nil {
		return err
	}
	if err := refusedBy(plan); err != nil {
		return err
	}
	if _, err := call(ctx, a, a.connection.operations.CreateOperation, request); err != nil {
		return err
	}
	a.remark("Dry run: nothing was changed.")
	return nil
}

// confirm asks as the plan wants it: for a yes, or for a name.
func (a *app) confirm(ctx context.Context, plan *pb.Plan, wanted *pb.OperationOrder, flags startFlags) error {
	if plan.GetConfirmation() != pb.Confirmation_CONFIRMATION_NAME {
		return a.ask(ctx, "Start?", flags.yes)
	}
	if node := wanted.GetParameters().GetNode(); node != nil {
		return a.askName(ctx, "machine", node.GetMachine(), flags.confirm)
	}
	return a.askName(ctx, "cluster", plan.GetCluster().GetName(), flags.confirm)
}

// Creating is tried again when nobody answers: the key makes it one operation, whatever reached the hub.
const (
	createTries = 5
	createPause = time.Second
)

// create creates the operation.
func (a *app) create(ctx context.Context, request *pb.CreateOperationRequest) (*pb.CreateOperationResponse, error) {
	pause := createPause
	for try := 1; ; try++ {
		response, err := call(ctx, a, a.connection.operations.CreateOperation, request)
		switch {
		case ctx.Err() != nil:
			return nil, interruptedStart(request)
		case err == nil || connect.CodeOf(err) != connect.CodeUnavailable || try == createTries:
			return response, err
		}
		if try == 1 {
			a.remark("%v; trying again", err)
		}
		select {
		case <-ctx.Done():
			return nil, interruptedStart(request)
		case <-time.After(pause):
			pause *= 2
		}
	}
}

// interruptedStart is told to who does not wait for the answer.
func interruptedStart(request *pb.CreateOperationRequest) error {
	cluster := request.GetOrder().GetCluster()
	err := fmt.Errorf("interrupted; it may have been started, see: ichor operation list --cluster %s -n %s", cluster.GetName(), cluster.GetNamespace())
	return &codedError{err, exitInterrupted}
}

// started says what was started, and follows it.
func (a *app) started(ctx context.Context, response *pb.CreateOperationResponse, followed bool) error {
	op := response.GetOperation()
	name := a.named(op.GetRef())
	switch {
	case !response.GetWroteSpec():
	case op.GetKind() == pb.OperationKind_OPERATION_KIND_ICHOR:
		a.remark("The spec of the IchorInstallation asks for it now.")
	default:
		a.remark("The spec of cluster %s asks for it now.", op.GetCluster().GetName())
	}
	switch {
	case a.forPeople() && response.GetExisted():
		fmt.Fprintf(a.Out, "Operation %s exists: an earlier call with the same key has created it.\n", name)
	case a.forPeople():
		fmt.Fprintf(a.Out, "Operation %s is created.\n", name)
	case !followed, a.output == outputName:
		if err := a.printItem(a.operationItem(op)); err != nil {
			return err
		}
	}
	if followed {
		return a.follow(ctx, op.GetRef())
	}
	a.remark("Follow it with: ichor operation watch %s", name)
	return nil
}
