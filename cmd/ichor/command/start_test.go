// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

func planMachineOf(name string, role pb.MachineRole) *pb.PlanMachine {
	return &pb.PlanMachine{
		Name: name, Role: role, Current: &pb.OperationTarget{TalosVersion: "v1.13.9"}, Target: &pb.OperationTarget{TalosVersion: "v1.14.1"},
	}
}

func together(machines ...*pb.PlanMachine) *pb.PlanGroup { return &pb.PlanGroup{Machines: machines} }

func upgradePlan() *pb.Plan {
	leader, w1, w2 := planMachineOf("prod-1-cp-1", 1), planMachineOf("prod-1-w-1", 2), planMachineOf("prod-1-w-2", 2)
	return &pb.Plan{
		Cluster: ref("default", "prod-1"), Kind: pb.OperationKind_OPERATION_KIND_TALOS, Effect: pb.Effect_EFFECT_REBOOT,
		Stages: []*pb.PlanStage{
			{Name: "Pull", Groups: []*pb.PlanGroup{together(leader, w1, w2)}},
			{Name: "Upgrade", Disruptive: true, Groups: []*pb.PlanGroup{together(leader), together(w1, w2)}},
		},
		Held: []string{"prod-1-w-3"}, Current: &pb.OperationTarget{TalosVersion: "v1.13.9"},
		Target:   &pb.OperationTarget{TalosVersion: "v1.14.1", SchematicId: strings.Repeat("3", 64)},
		Warnings: []*pb.Warning{{Code: "SingleControlPlane", Message: "the only control plane reboots"}}, EstimatedDuration: durationpb.New(754 * time.Second),
		Overridden:   []*pb.Refusal{{Gate: "WorkersAvailable", Message: "w-9 is not ready"}},
		ObservedTime: ago(2 * time.Second), Confirmation: pb.Confirmation_CONFIRMATION_YES, WritesSpec: true, LiveGates: []string{"EtcdHealthy", "TargetReachable"},
	}
}

func talosRefusal() *pb.Refusal {
	return &pb.Refusal{Gate: "TalosVersionPath", Message: "v1.12.0 is older than the running v1.13.9", Help: "choose a newer version"}
}

func roomRefusal() *pb.Refusal {
	return &pb.Refusal{Gate: "WorkersAvailable", Message: "w-9 is not ready", Overridable: true}
}

// planning lays down a plan, and what comes of starting it.
func planning(t *testing.T, plan *pb.Plan) (*fakeHub, *user) {
	t.Helper()
	h := world(t)
	h.answer(&pb.PlanOperationResponse{Plan: plan}, &pb.CreateOperationResponse{Operation: upgrade(inProgress), WroteSpec: true})
	return h, newUser(t, h)
}

var upgradeArgs = []string{"upgrade", "talos", "v1.14.1", "--cluster", "prod-1"}

func with(args []string, more ...string) []string {
	return append(append([]string{}, args...), more...)
}

// The plan is what the hub says, in its order.
func TestShowPlan(t *testing.T) {
	for name, args := range map[string][]string{
		"plan": {"operation", "plan", "talos", "v1.14.1", "--cluster", "prod-1"}, "dry-run": with(upgradeArgs, "--dry-run"), "start": with(upgradeArgs, "--yes"),
		"plan-json": {"operation", "plan", "talos", "v1.14.1", "--cluster", "prod-1", "-o", "json"},
	} {
		t.Run(name, func(t *testing.T) {
			h, u := planning(t, upgradePlan())
			r := u.ichor(args...)
			NewWithT(t).Expect(r.Code).To(BeZero(), r.Err)
			golden(t, "start-"+name+".txt", strings.ReplaceAll("standard output:\n"+r.Out+"standard error:\n"+r.Err, h.url, "http://hub"))
		})
	}
}

// What restarts is not said to go away, and what changes in the cluster is shown as it says itself.
func TestShowKubernetesPlan(t *testing.T) {
	g := NewWithT(t)
	plan := upgradePlan()
	plan.Kind, plan.Effect, plan.Target = pb.OperationKind_OPERATION_KIND_KUBERNETES, pb.Effect_EFFECT_RESTART_COMPONENTS, &pb.OperationTarget{KubernetesVersion: "v1.36.1"}
	plan.Manifests = []*pb.PlanManifest{
		{Object: "DaemonSet kube-system/kube-proxy", Action: "Configured", Diff: "-  image: old\n+  image: new\n"},
		{Object: "DaemonSet kube-system/cilium", Action: "Skipped", Owner: `release "cilium" of Helm`},
	}
	_, u := planning(t, plan)
	r := u.ichor("operation", "plan", "kubernetes", "v1.36.1", "--cluster", "prod-1")
	g.Expect(r.Code).To(BeZero(), r.Err)
	g.Expect(r.Out).To(And(
		ContainSubstring("upgrade Kubernetes to v1.36.1; components restart\n"), ContainSubstring("  2. Upgrade: restarts components, in 2 groups one after the other\n"),
		ContainSubstring("  Configured: DaemonSet kube-system/kube-proxy\n    -  image: old\n    +  image: new\n"),
		ContainSubstring("  Skipped: DaemonSet kube-system/cilium, kept by release \"cilium\" of Helm\n"),
	))
	plan.Manifests, plan.ManifestsTrouble = nil, "no answer"
	_, u = planning(t, plan)
	g.Expect(u.ichor("operation", "plan", "kubernetes", "v1.36.1", "--cluster", "prod-1").Out).To(ContainSubstring("What changes in the cluster is not known: no answer\n"))
}

// What the user saw is what runs, or nothing does; and one call of the command is one operation.
func TestStartSendsWhatWasSeen(t *testing.T) {
	g := NewWithT(t)
	h, u := planning(t, upgradePlan())
	r := u.ichor(with(upgradeArgs, "--yes", "--max-unavailable", "25%", "--override", "WorkersAvailable=w-9 is being replaced", "--schematic", "abc")...)
	g.Expect(r.Code).To(BeZero(), r.Err)
	g.Expect(r.Out).To(Equal("Operation prod-1-talos-x is created.\n"))
	order := &pb.OperationOrder{
		Cluster: ref("default", "prod-1"), Kind: pb.OperationKind_OPERATION_KIND_TALOS, MaxUnavailable: "25%",
		Target:    &pb.OperationTarget{TalosVersion: "v1.14.1", SchematicId: "abc"},
		Overrides: []*pb.GateOverride{{Gate: "WorkersAvailable", Reason: "w-9 is being replaced"}},
	}
	g.Expect(of[*pb.PlanOperationRequest](h)[0].GetOrder()).To(BeComparableTo(order, protoEqual))
	created := of[*pb.CreateOperationRequest](h)[0]
	g.Expect(created.GetIdempotencyKey()).To(MatchRegexp(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`))
	created.IdempotencyKey = ""
	g.Expect(created).To(BeComparableTo(&pb.CreateOperationRequest{Order: order, ExpectedTarget: upgradePlan().GetTarget()}, protoEqual))

	u.ichor(with(upgradeArgs, "--yes")...)
	u.ichor(with(upgradeArgs, "--yes", "--idempotency-key", "mine")...)
	keys := of[*pb.CreateOperationRequest](h)
	g.Expect(keys[1].GetIdempotencyKey()).NotTo(BeEmpty())
	g.Expect(keys[2].GetIdempotencyKey()).To(Equal("mine"))
}

// A dry run has everything checked and writes nothing.
func TestDryRun(t *testing.T) {
	g := NewWithT(t)
	h, u := planning(t, upgradePlan())
	r := u.ichor(with(upgradeArgs, "--dry-run")...)
	g.Expect(r.Code).To(BeZero(), r.Err)
	g.Expect(r.Err).To(Equal("Dry run: nothing was changed.\n"))
	created := of[*pb.CreateOperationRequest](h)
	g.Expect(created).To(HaveLen(1))
	g.Expect(created[0].GetValidateOnly()).To(BeTrue())
}

// Nothing starts unless somebody has agreed to it: with a key on a terminal, or by a flag.
func TestConfirmation(t *testing.T) {
	yes, name := pb.Confirmation_CONFIRMATION_YES, pb.Confirmation_CONFIRMATION_NAME
	for title, row := range map[string]struct {
		wants    pb.Confirmation
		terminal bool
		types    string
		args     []string
		code     int
		says     string
	}{
		"no terminal":                     {yes, false, "y\n", nil, 2, "there is no terminal to ask on: add --yes"},
		"a flag":                          {yes, false, "", []string{"--yes"}, 0, ""},
		"yes":                             {yes, true, "y\n", nil, 0, "Start? [y/N] "},
		"no":                              {yes, true, "n\n", nil, 1, "not confirmed, nothing was changed"},
		"nothing":                         {yes, true, "\n", nil, 1, "not confirmed"},
		"end of input":                    {yes, true, "", nil, 1, "not confirmed"},
		"name":                            {name, true, "prod-1\n", nil, 0, "Type the name of the cluster (prod-1) to go on: "},
		"another name":                    {name, true, "prod-2\n", nil, 1, "not confirmed"},
		"yes for a name":                  {name, true, "y\n", []string{"--yes"}, 1, "not confirmed"},
		"name, no terminal":               {name, false, "", []string{"--yes"}, 2, "add --confirm prod-1"},
		"name by a flag":                  {name, false, "", []string{"--confirm", "prod-1"}, 0, ""},
		"another name by a flag":          {name, false, "", []string{"--confirm", "prod-2"}, 2, `--confirm "prod-2" is not the name of the cluster, "prod-1"`},
		"a name where a yes is wanted":    {yes, false, "", []string{"--confirm", "prod-1"}, 2, "add --yes"},
		"another name where yes is given": {yes, false, "", []string{"--confirm", "x", "--yes"}, 0, ""},
	} {
		t.Run(title, func(t *testing.T) {
			g := NewWithT(t)
			plan := upgradePlan()
			plan.Confirmation = row.wants
			h, u := planning(t, plan)
			u.in, u.terminal = strings.NewReader(row.types), row.terminal
			r := u.ichor(with(upgradeArgs, row.args...)...)
			g.Expect(r).To(And(HaveField("Code", row.code), HaveField("Err", ContainSubstring(row.says))))
			started := 0
			if row.code == 0 {
				started = 1
			}
			g.Expect(of[*pb.CreateOperationRequest](h)).To(HaveLen(started))
		})
	}
}

// The name of a machine is asked for where a machine is what it is about.
func TestConfirmTheNameOfAMachine(t *testing.T) {
	g := NewWithT(t)
	h, u := planning(t, &pb.Plan{Cluster: ref("default", "prod-1"), Kind: pb.OperationKind_OPERATION_KIND_NODE, Confirmation: pb.Confirmation_CONFIRMATION_NAME})
	r := u.ichor("node", "reboot", "w-2", "--confirm", "prod-1")
	g.Expect(r).To(And(HaveField("Code", 2), HaveField("Err", ContainSubstring(`not the name of the machine, "prod-1-w-2"`))))
	g.Expect(u.ichor("node", "reboot", "w-2", "--confirm", "prod-1-w-2").Code).To(BeZero())
	g.Expect(of[*pb.CreateOperationRequest](h)).To(HaveLen(1))
}

// Refusals are told with what helps, whether the plan has them or the start; nobody is asked for a confirmation of what cannot be.
func TestRefusals(t *testing.T) {
	one := "Error: refused: TalosVersionPath: v1.12.0 is older than the running v1.13.9 (choose a newer version)\n"
	two := "Error: refused for 2 reasons:\n  TalosVersionPath: v1.12.0 is older than the running v1.13.9 (choose a newer version)\n" +
		"  WorkersAvailable: w-9 is not ready; to bypass it, if you may: --override WorkersAvailable=REASON\n"
	for name, row := range map[string]struct {
		args     []string
		planned  []*pb.Refusal
		started  []*pb.Refusal
		want     string
		creates  int
		terminal bool
	}{
		"by the plan":      {args: upgradeArgs, planned: []*pb.Refusal{talosRefusal()}, want: one, terminal: true},
		"by the plan, two": {args: with(upgradeArgs, "--yes"), planned: []*pb.Refusal{talosRefusal(), roomRefusal()}, want: two},
		"by a dry run":     {args: with(upgradeArgs, "--dry-run"), planned: []*pb.Refusal{talosRefusal()}, want: one},
		"of a plan":        {args: []string{"op", "plan", "talos", "v1.12.0", "--cluster", "prod-1"}, planned: []*pb.Refusal{talosRefusal()}, want: one},
		"by the start":     {args: with(upgradeArgs, "--yes"), started: []*pb.Refusal{talosRefusal(), roomRefusal()}, want: two, creates: 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := world(t)
			plan := upgradePlan()
			plan.Refusals = row.planned
			h.answer(&pb.PlanOperationResponse{Plan: plan})
			h.refuse(&pb.CreateOperationResponse{}, connect.CodeFailedPrecondition, "refused", &pb.Refusals{Refusals: row.started})
			u := newUser(t, h)
			u.terminal, u.in = row.terminal, strings.NewReader("y\n")
			r := u.ichor(row.args...)
			g.Expect(r).To(And(HaveField("Code", 1), HaveField("Err", HaveSuffix(row.want)), HaveField("Err", Not(ContainSubstring("Start?")))))
			g.Expect(of[*pb.CreateOperationRequest](h)).To(HaveLen(row.creates))
		})
	}
}

// What was half done is told, and how it is finished.
func TestPartlyDone(t *testing.T) {
	g := NewWithT(t)
	h := world(t)
	h.answer(&pb.PlanOperationResponse{Plan: upgradePlan()})
	h.refuse(&pb.CreateOperationResponse{}, connect.CodeInternal, "creating the operation failed: quota", &pb.PartlyDone{
		Done: "spec.talosVersion of prod-1 is v1.14.1", Missing: "the operation", Finish: "run the command again",
	})
	r := newUser(t, h).ichor(with(upgradeArgs, "--yes")...)
	g.Expect(r.Code).To(Equal(1))
	g.Expect(r.Err).To(HaveSuffix(`Error: creating the operation failed: quota
  done:    spec.talosVersion of prod-1 is v1.14.1
  missing: the operation
  finish:  run the command again
`))
}

// A hub that does not answer is asked again, with the same key, so that there is one operation whatever it has done before.
func TestCreateIsTriedAgainWithTheSameKey(t *testing.T) {
	g := NewWithT(t)
	h := world(t)
	h.answer(&pb.PlanOperationResponse{Plan: upgradePlan()})
	h.refuse(&pb.CreateOperationResponse{}, connect.CodeUnavailable, "restarting")
	h.answer(&pb.CreateOperationResponse{Operation: upgrade(inProgress), Existed: true})
	r := newUser(t, h).ichor(with(upgradeArgs, "--yes")...)
	g.Expect(r.Code).To(BeZero(), r.Err)
	g.Expect(r.Out).To(Equal("Operation prod-1-talos-x exists: an earlier call with the same key has created it.\n"))
	g.Expect(strings.Count(r.Err, "trying again")).To(Equal(1))
	created := of[*pb.CreateOperationRequest](h)
	g.Expect(created).To(HaveLen(2))
	g.Expect(created[0].GetIdempotencyKey()).To(Equal(created[1].GetIdempotencyKey()))
}

func TestNothingToDo(t *testing.T) {
	g := NewWithT(t)
	plan := upgradePlan()
	plan.AtTarget = true
	h, u := planning(t, plan)
	r := u.ichor(upgradeArgs...)
	g.Expect(r).To(And(HaveField("Code", 0), HaveField("Out", BeEmpty()), HaveField("Err", ContainSubstring("v1.14.1, schematic 333333333333): nothing to do"))))
	g.Expect(of[*pb.CreateOperationRequest](h)).To(BeEmpty())
}

// What is wrong with the command line is said before anybody is asked anything, with exit code 2.
func TestUsage(t *testing.T) {
	for name, row := range map[string]struct {
		args []string
		says string
	}{
		"output":          {[]string{"cluster", "list", "-o", "xml"}, `--output "xml" is not one of table, wide, json, yaml, name, jsonl`},
		"flag":            {[]string{"cluster", "list", "--nope"}, "unknown flag: --nope; see: ichor cluster list --help"},
		"command":         {[]string{"clutser"}, `unknown command "clutser" for "ichor"`},
		"subcommand":      {[]string{"cluster", "lsit"}, `unknown command "lsit" for "ichor cluster"; see: ichor cluster --help`},
		"no subcommand":   {[]string{"cluster"}, "ichor cluster needs a command"},
		"too few":         {[]string{"cluster", "get"}, "accepts 1 arg(s), received 0; see: ichor cluster get --help"},
		"max-unavailable": {with(upgradeArgs, "--max-unavailable", "few"), `--max-unavailable "few" is neither a number nor a percentage such as 25%`},
		"fraction":        {with(upgradeArgs, "--max-unavailable", "2.5"), `--max-unavailable "2.5"`},
		"percent alone":   {with(upgradeArgs, "--max-unavailable", "%"), `--max-unavailable "%"`},
		"mode":            {[]string{"node", "reboot", "w-1", "--mode", "hard"}, `--mode "hard" is not one of default, powercycle, force`},
		"no service":      {[]string{"node", "restart-service", "w-1"}, "--service is needed: the service: kubelet, or ext- and the name of an extension's service"},
		"manner":          {[]string{"node", "reset", "w-1", "--manner", "rude"}, `--manner "rude" is not one of graceful, forced`},
		"wipe":            {[]string{"node", "reset", "w-1", "--wipe", "system,cloud"}, `--wipe "cloud" is not one of system, user-volumes`},
		"after":           {[]string{"node", "reset", "w-1", "--after", "party"}, `--after "party" is not one of reboot, power-off`},
		"alarms":          {[]string{"node", "etcd-defrag", "--alarms", "ring"}, `--alarms "ring" is not one of keep, disarm`},
		"no such flag":    {[]string{"node", "shutdown", "w-1", "--mode", "force"}, "unknown flag: --mode"},
		"members of none": {[]string{"node", "etcd-defrag"}, "--cluster is needed"},
		"two machines":    {[]string{"node", "etcd-defrag", "w-1", "w-2"}, "accepts at most 1 arg(s), received 2"},
		"override":        {with(upgradeArgs, "--override", "Room"), `--override "Room" is not GATE=REASON`},
		"empty reason":    {with(upgradeArgs, "--override", "Room= "), `--override "Room= " is not GATE=REASON`},
		"override twice":  {with(upgradeArgs, "--override", "Room=a", "--override", "Room=b"), "--override Room is there twice"},
		"no cluster":      {[]string{"upgrade", "talos", "v1.14.1"}, "--cluster is needed; list clusters with: ichor cluster list"},
		"timeout":         {[]string{"cluster", "list", "--timeout", "-1s"}, "--timeout -1s is negative"},
		"audit limit":     {[]string{"audit", "--limit", "-1"}, "--limit -1 is negative"},
		"audit time":      {[]string{"audit", "--since", "yesterday"}, `--since "yesterday" is neither a time such as`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := world(t)
			r := newUser(t, h).ichor(row.args...)
			g.Expect(r).To(And(HaveField("Code", 2), HaveField("Err", ContainSubstring(row.says)), HaveField("Out", BeEmpty())))
			g.Expect(h.asked).To(BeEmpty())
		})
	}
}
