// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/gate"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	nodeplan "ichor.maesh.dev/hub/controllers/operation/kind/node/plan"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
	"ichor.maesh.dev/hub/providers/talos"
)

var (
	// defragSteps: a database of some gigabytes takes minutes.
	defragSteps = []kind.Step{
		{Name: v1alpha1.DefragmentingStep, Repeat: kind.Safe, Timeout: 15 * time.Minute},
		{Name: v1alpha1.DisarmingStep, Repeat: kind.Safe, Timeout: 2 * time.Minute},
	}
	forfeitSteps = common(v1alpha1.ForfeitingStep)
)

// nextDefrag defragments members, and then takes the alarm back. The gates are asked before each member.
func nextDefrag(_ *Executor, _ kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	switch {
	case unit.Failed():
		return kind.FailStep(unit, "")
	case seen.TalosTrouble != "":
		return kind.Action{Verdict: kind.Wait, Message: "waiting for the Talos API: " + seen.TalosTrouble}
	case unit.Status.Stage == nodeplan.DisarmStage:
		return disarming(unit, seen)
	case unit.Status.Step == "":
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.DefragmentingStep}
	}
	if missing := reboot.NotBackInEtcd(seen); missing != "" {
		return kind.Action{Verdict: kind.Wait, Message: missing}
	}
	return kind.Action{Verdict: kind.Done}
}

// disarming takes back alarms about space, and no others. Talos knows but one call for all alarms, so any other one keeps it from being made.
func disarming(unit kind.Unit, seen kind.Observation) kind.Action {
	begun := unit.Status.Step != ""
	if seen.EtcdTrouble != "" || seen.Etcd == nil {
		wait := kind.Action{Verdict: kind.Wait, Message: "waiting for etcd: " + seen.EtcdTrouble}
		if !begun {
			wait.Reason = v1alpha1.EtcdHealthyGate
		}
		return wait
	}
	others := slices.DeleteFunc(slices.Clone(seen.Etcd.Alarms), gate.IsSpaceAlarm)
	switch {
	case len(others) > 0:
		return kind.Action{Verdict: kind.Fail, Message: fmt.Sprintf("etcd has an alarm that is not about space, and would lose it as well: %s", strings.Join(others, ", "))}
	case len(seen.Etcd.Alarms) == 0:
		return kind.Action{Verdict: kind.Done}
	case begun:
		return kind.Action{Verdict: kind.Wait, Message: "waiting until the alarm is gone: " + strings.Join(seen.Etcd.Alarms, ", ")}
	}
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.DisarmingStep}
}

// nextForfeit moves the leadership away, if the member has it.
func nextForfeit(_ *Executor, _ kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	begun := unit.Status.Step != ""
	switch {
	case unit.Failed():
		return kind.FailStep(unit, "")
	case seen.TalosTrouble != "" || seen.EtcdTrouble != "" || seen.Etcd == nil || seen.Etcd.Leader == 0:
		wait := kind.Action{Verdict: kind.Wait, Message: fmt.Sprintf("etcd does not tell who leads: %s", trouble(seen))}
		if !begun {
			wait.Reason = v1alpha1.EtcdHealthyGate
		}
		return wait
	case seen.Etcd.Leader != seen.Etcd.MemberID:
		return kind.Action{Verdict: kind.Done}
	case begun:
		return kind.Action{Verdict: kind.Wait, Message: "waiting until another etcd member leads"}
	}
	if wait := unfitMember(*seen.Etcd); wait != "" {
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.EtcdHealthyGate, Message: wait}
	}
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.ForfeitingStep}
}

func trouble(seen kind.Observation) string {
	if seen.TalosTrouble != "" {
		return seen.TalosTrouble
	}
	if seen.EtcdTrouble != "" {
		return seen.EtcdTrouble
	}
	return "there is no leader"
}

// unfitMember names a member that could not lead. Talos gives the leadership to the first other one, whatever that is.
func unfitMember(etcd talos.Etcd) string {
	for _, member := range etcd.Members {
		switch {
		case member.Learner:
			return fmt.Sprintf("etcd member %s is a learner: it could not lead", member.Hostname)
		case !member.Started:
			return fmt.Sprintf("etcd member %016x has not started: it could not lead", member.ID)
		}
	}
	return ""
}

func (e *Executor) defragment(ctx context.Context, scope kind.Scope, unit kind.Unit) (kind.Outcome, error) {
	writer, _, err := e.Writer(ctx, scope, unit)
	if err != nil {
		return kind.Outcome{}, err
	}
	before, after, err := writer.Defragment(ctx, unit.Machine.Spec.Address)
	if err != nil {
		return kind.Outcome{}, err
	}
	return kind.Outcome{Message: fmt.Sprintf("the database has %s, and had %s", mebibytes(after), mebibytes(before))}, nil
}

func mebibytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

func (e *Executor) disarm(ctx context.Context, scope kind.Scope, unit kind.Unit) error {
	writer, _, err := e.Writer(ctx, scope, unit)
	if err != nil {
		return err
	}
	return writer.DisarmAlarms(ctx, unit.Machine.Spec.Address)
}
