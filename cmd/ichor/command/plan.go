// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"ichor.maesh.dev/hub/cmd/ichor/follow"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// showPlanAsResult prints a plan that is all that was asked for.
func (a *app) showPlanAsResult(plan *pb.Plan, wanted *pb.OperationOrder) error {
	switch {
	case a.forPeople():
		a.showPlan(a.Out, plan, wanted)
		return nil
	case a.output == outputName:
		return nil // A plan has none.
	}
	return a.printDocumentLine(plan)
}

// printDocumentLine prints one message, on one line where that is the format.
func (a *app) printDocumentLine(message proto.Message) error {
	return a.printItem(item{message: message})
}

// showPlan prints what would be done, in the order in which it would be, and what speaks against it.
func (a *app) showPlan(w io.Writer, plan *pb.Plan, wanted *pb.OperationOrder) {
	fmt.Fprintf(w, "Cluster %s on %s: %s%s\n", a.named(plan.GetCluster()), a.connection.where, purpose(plan, wanted), effect(plan.GetEffect()))
	for i, stage := range plan.GetStages() {
		fmt.Fprintf(w, "  %d. %s%s\n", i+1, stage.GetName(), stageNote(stage, plan.GetEffect()))
		for j, g := range stage.GetGroups() {
			showGroup(w, j+1, g)
		}
	}
	for _, held := range plan.GetHeld() {
		fmt.Fprintf(w, "  held, skipped: %s\n", held)
	}
	for _, loss := range plan.GetLosses() {
		fmt.Fprintf(w, "  Lost for good: %s\n", follow.Plain(loss))
	}
	for _, warning := range plan.GetWarnings() {
		fmt.Fprintf(w, "  Warning: %s\n", follow.Plain(warning.GetMessage()))
	}
	for _, r := range plan.GetOverridden() {
		fmt.Fprintf(w, "  Overridden: %s: %s\n", r.GetGate(), follow.Plain(r.GetMessage()))
	}
	for _, r := range plan.GetRefusals() {
		fmt.Fprintf(w, "  Refused: %s: %s\n", r.GetGate(), follow.Plain(r.GetMessage()))
	}
	showManifests(w, plan)
	if plan.GetWritesSpec() {
		fmt.Fprintf(w, "  The spec of the cluster is changed first: %s\n", targetWords(plan.GetTarget()))
	}
	a.showFacts(w, plan)
}

// showManifests prints what would change in the cluster, with the diffs.
func showManifests(w io.Writer, plan *pb.Plan) {
	if trouble := plan.GetManifestsTrouble(); trouble != "" {
		fmt.Fprintf(w, "  What changes in the cluster is not known: %s\n", follow.Plain(trouble))
	}
	for _, manifest := range plan.GetManifests() {
		owner := ""
		if manifest.GetOwner() != "" {
			owner = ", kept by " + manifest.GetOwner()
		}
		fmt.Fprintf(w, "  %s: %s%s\n", manifest.GetAction(), follow.Plain(manifest.GetObject()), follow.Plain(owner))
		for line := range strings.Lines(manifest.GetDiff()) {
			fmt.Fprintf(w, "    %s\n", follow.Plain(strings.TrimSuffix(line, "\n")))
		}
	}
}

// showFacts prints what a plan rests on.
func (a *app) showFacts(w io.Writer, plan *pb.Plan) {
	if estimated := plan.GetEstimatedDuration(); estimated != nil {
		fmt.Fprintf(w, "  Takes about %s, as earlier operations did.\n", human(estimated.AsDuration()))
	}
	if len(plan.GetLiveGates()) > 0 {
		fmt.Fprintf(w, "  Judged when it starts: %s\n", strings.Join(plan.GetLiveGates(), ", "))
	}
	if observed := plan.GetObservedTime(); observed != nil {
		fmt.Fprintf(w, "  As known %s ago.\n", human(a.Now().Sub(observed.AsTime())))
	}
}

// purpose is what an order is for.
func purpose(plan *pb.Plan, wanted *pb.OperationOrder) string {
	if node := wanted.GetParameters().GetNode(); node != nil {
		return nodePurpose(node)
	}
	if shutdown := wanted.GetParameters().GetShutdown(); shutdown != nil {
		return strings.ToLower(shutdown.GetAction()) + " the whole cluster"
	}
	if rotation := wanted.GetParameters().GetKeyRotation(); rotation != nil {
		return "rotate keys (" + strings.Join(rotation.GetKeys(), ", ") + ")"
	}
	if rotation := wanted.GetParameters().GetCaRotation(); rotation != nil {
		return "replace the certificate authorities of " + strings.Join(rotation.GetAuthorities(), " and ")
	}
	if restore := wanted.GetParameters().GetEtcdRestore(); restore != nil {
		return "put the whole cluster back to snapshot " + restore.GetSnapshotName()
	}
	if version := plan.GetTarget().GetTalosVersion(); plan.GetKind() == pb.OperationKind_OPERATION_KIND_TALOS && version != "" {
		return "upgrade Talos to " + version
	}
	if plan.GetKind() == pb.OperationKind_OPERATION_KIND_CONFIG {
		return "roll the machine config out"
	}
	if version := plan.GetTarget().GetKubernetesVersion(); plan.GetKind() == pb.OperationKind_OPERATION_KIND_KUBERNETES && version != "" {
		return "upgrade Kubernetes to " + version
	}
	if version := plan.GetTarget().GetIchorVersion(); plan.GetKind() == pb.OperationKind_OPERATION_KIND_ICHOR && version != "" {
		return "upgrade the hub to " + version
	}
	return follow.KindName(plan.GetKind())
}

// effects are the worst that a machine goes through, in words.
var effects = map[pb.Effect]string{
	pb.Effect_EFFECT_RESTART_COMPONENTS: "components restart", pb.Effect_EFFECT_REBOOT: "machines reboot", pb.Effect_EFFECT_STOP: "machines stop",
	pb.Effect_EFFECT_CA_ROTATION: "certificate authorities change", pb.Effect_EFFECT_KEY_ROTATION: "keys change",
	pb.Effect_EFFECT_RESTORE: "etcd goes back to a snapshot", pb.Effect_EFFECT_RESET: "the machine is wiped", pb.Effect_EFFECT_JOIN: "the machine becomes one of the cluster",
	pb.Effect_EFFECT_REMOVE: "the machine leaves the cluster for good",
}

func effect(e pb.Effect) string {
	if effects[e] == "" {
		return ""
	}
	return "; " + effects[e]
}

// stageNote says how the machines of a stage go.
func stageNote(stage *pb.PlanStage, worst pb.Effect) string {
	machines := 0
	for _, g := range stage.GetGroups() {
		machines += len(g.GetMachines())
	}
	note := ""
	switch groups := len(stage.GetGroups()); {
	case machines <= 1:
	case groups == 1:
		note = ", all at once"
	case groups == machines:
		note = ", one at a time"
	default:
		note = fmt.Sprintf(", in %d groups one after the other", groups)
	}
	switch {
	case stage.GetDisruptive() && worst == pb.Effect_EFFECT_RESTART_COMPONENTS:
		return ": restarts components" + note
	case stage.GetDisruptive():
		return ": takes machines away" + note
	}
	return note
}

// showGroup prints machines that go at once, with their number in the order of groups.
func showGroup(w io.Writer, number int, g *pb.PlanGroup) {
	for i, machine := range g.GetMachines() {
		mark := fmt.Sprint(number)
		if i > 0 {
			mark = ""
		}
		fmt.Fprintf(w, "     %3s  %s\n", mark, planMachine(machine))
	}
}

func planMachine(m *pb.PlanMachine) string {
	text := fmt.Sprintf("%s (%s)", m.GetName(), word("MACHINE_ROLE_", m.GetRole()))
	current, target := versionsOf(m.GetCurrent()), versionsOf(m.GetTarget())
	var changes []string
	for i := range target {
		if target[i].value != "" && target[i].value != current[i].value {
			changes = append(changes, fmt.Sprintf("%s%s -> %s", target[i].name, cmp.Or(current[i].value, "?"), target[i].value))
		}
	}
	if effect := machineEffect(m); effect != "" {
		changes = append(changes, effect)
	}
	if len(changes) == 0 {
		return text
	}
	return text + " " + strings.Join(changes, ", ")
}

// machineEffect says what one machine goes through, where that differs from machine to machine.
func machineEffect(m *pb.PlanMachine) string {
	switch e := m.GetEffect(); {
	case e == pb.Effect_EFFECT_REBOOT:
		return "reboots"
	case e == pb.Effect_EFFECT_RESTART_COMPONENTS:
		return "changes without a reboot"
	case e == pb.Effect_EFFECT_NONE && m.GetDiff() != "":
		return "changes for the next upgrade of Talos"
	case e == pb.Effect_EFFECT_NONE:
		return "stays as it is"
	}
	return ""
}

// versionOf is one part of a target, in words.
type versionOf struct{ name, value string }

func versionsOf(t *pb.OperationTarget) []versionOf {
	return []versionOf{
		{"", t.GetTalosVersion()}, {"schematic ", short(t.GetSchematicId())}, {"Kubernetes ", t.GetKubernetesVersion()},
		{"Cilium ", t.GetCiliumVersion()}, {"kube-proxy ", t.GetKubeProxy()}, {"Ichor hub ", t.GetIchorVersion()},
	}
}

// targetWords are the versions of a target that are set.
func targetWords(t *pb.OperationTarget) string {
	var words []string
	for _, version := range versionsOf(t) {
		if version.value != "" {
			words = append(words, version.name+version.value)
		}
	}
	if hash := t.GetMachineConfigHash(); hash != "" {
		words = append(words, "machine config "+short(hash))
	}
	return strings.Join(words, ", ")
}

// short is the beginning of a hash: enough to tell two apart.
func short(hash string) string {
	const enough = 12
	if len(hash) > enough {
		return hash[:enough]
	}
	return hash
}

// human is a duration as people say it, to two places.
func human(d time.Duration) string {
	switch d = d.Round(time.Second); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}
