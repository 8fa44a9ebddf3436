// SPDX-License-Identifier: Apache-2.0

package ichor

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/installation"
	"ichor.maesh.dev/hub/providers/installation/fake"
)

const (
	old    = "v0.1.0"
	target = "v0.2.0"
)

func scope() kind.Scope {
	return kind.Scope{
		Owner: "team-a/up", OperationID: "id", Target: v1alpha1.OperationTarget{IchorVersion: target},
		Guard: func(context.Context) error { return nil },
	}
}

func unit(step v1alpha1.OperationStep, outcome *v1alpha1.CallOutcome) kind.Unit {
	return kind.Unit{Status: v1alpha1.UnitStatus{Name: "Install", Stage: "Install", Step: step, Outcome: outcome}}
}

func deployment(version string, waits string) *installation.Deployment {
	return &installation.Deployment{Image: "registry.example/ichor-hub:" + version, RolledOut: waits == "", Waits: waits}
}

func TestNext(t *testing.T) {
	succeeded := &v1alpha1.CallOutcome{Result: v1alpha1.CallSucceeded}
	for name, row := range map[string]struct {
		version string
		unit    kind.Unit
		seen    look
		want    kind.Action
	}{
		"a Job is asked for": {
			version: old, seen: look{Look: installation.Look{Deployment: deployment(old, "")}}, want: kind.Action{Verdict: kind.Call, Step: "Installing"},
		},
		"nothing is left to do": {
			version: target, seen: look{Look: installation.Look{Deployment: deployment(target, "")}}, want: kind.Action{Verdict: kind.Done, Message: "the hub is v0.2.0 already"},
		},
		"another hub leads already, and its Deployment is not there": {
			version: target, seen: look{Look: installation.Look{Deployment: deployment(target, "1 of 2 replicas are ready")}},
			want: kind.Action{Verdict: kind.Call, Step: "Installing"},
		},
		"the Job is there": {version: old, unit: unit("Installing", succeeded), want: kind.Action{Verdict: kind.Wait, Step: "RollingOut", Message: "the installer begins"}},
		"the management API was away": {
			version: old, unit: unit("Installing", &v1alpha1.CallOutcome{Result: v1alpha1.CallFailed, Class: v1alpha1.ErrorRetryable}),
			want: kind.Action{Verdict: kind.Call, Step: "Installing"},
		},
		"somebody keeps the Deployment by now": {
			version: old, unit: unit("Installing", &v1alpha1.CallOutcome{Result: v1alpha1.CallFailed, Class: v1alpha1.ErrorPermanent, Message: "kept by Flux"}),
			want: kind.Action{Verdict: kind.Fail, Message: "Installing failed: kept by Flux"},
		},
		"the Job runs": {
			version: old, unit: unit("RollingOut", nil), seen: look{Look: installation.Look{Deployment: deployment(old, ""), Job: &installation.Job{State: installation.JobRunning, Message: "ImagePullBackOff"}}},
			want: kind.Action{Verdict: kind.Wait, Message: "installer Job " + JobName("id") + " runs: ImagePullBackOff"},
		},
		"the Job has failed": {
			version: old, unit: unit("RollingOut", nil), seen: look{Look: installation.Look{Deployment: deployment(old, ""), Job: &installation.Job{State: installation.JobFailed, Message: "no rights"}}},
			want: kind.Action{Verdict: kind.Fail, RetryStep: "Installing", Message: "installer Job " + JobName("id") + " failed: no rights"},
		},
		"the Job is gone": {
			version: old, unit: unit("RollingOut", nil), seen: look{Look: installation.Look{Deployment: deployment(old, "")}},
			want: kind.Action{Verdict: kind.Fail, RetryStep: "Installing", Message: "installer Job " + JobName("id") + " is gone, and the hub is v0.1.0"},
		},
		"an old hub leads still": {
			version: old, unit: unit("RollingOut", nil), seen: look{Look: installation.Look{Deployment: deployment(target, ""), Job: &installation.Job{State: installation.JobSucceeded}}},
			want: kind.Action{Verdict: kind.Wait, Message: "installed; the hub that leads is still v0.1.0"},
		},
		"the new hub leads while the Job waits": {
			version: target, unit: unit("RollingOut", nil), seen: look{Look: installation.Look{Deployment: deployment(target, ""), Job: &installation.Job{State: installation.JobRunning}}},
			want: kind.Action{Verdict: kind.Wait, Message: "installer Job " + JobName("id") + " runs"},
		},
		"replicas are left": {
			version: target, unit: unit("RollingOut", nil),
			seen: look{Look: installation.Look{Deployment: deployment(target, "replicas of the old version are left: 1"), Job: &installation.Job{State: installation.JobSucceeded}}},
			want: kind.Action{Verdict: kind.Wait, Message: "installed; replicas of the old version are left: 1"},
		},
		"all is new": {
			version: target, unit: unit("RollingOut", nil), seen: look{Look: installation.Look{Deployment: deployment(target, ""), Job: &installation.Job{State: installation.JobSucceeded}}},
			want: kind.Action{Verdict: kind.Done, Message: "the hub is v0.2.0"},
		},
		"nobody answers": {
			version: old, unit: unit("RollingOut", nil), seen: look{trouble: "connection refused"},
			want: kind.Action{Verdict: kind.Wait, Message: "nothing is known of the hub's own installation: connection refused"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(New(nil, row.version).Next(scope(), row.unit, kind.Observation{Own: row.seen})).To(Equal(row.want))
		})
	}
}

func TestSettle(t *testing.T) {
	g := NewWithT(t)
	e := New(nil, old)
	park := kind.Action{Verdict: kind.Park}
	g.Expect(e.Settle(scope(), unit("", nil), kind.Observation{})).To(Equal(park))
	failed := unit("RollingOut", nil)
	failed.Status.FailureTime = metav1.Now()
	g.Expect(e.Settle(scope(), failed, kind.Observation{})).To(Equal(park))
	running := look{Look: installation.Look{Deployment: deployment(old, ""), Job: &installation.Job{State: installation.JobRunning}}}
	g.Expect(e.Settle(scope(), unit("RollingOut", nil), kind.Observation{Own: running})).To(HaveField("Verdict", kind.Wait), "half an upgrade is no safe point")
}

func TestOneJobHoweverOftenItIsAskedFor(t *testing.T) {
	g := NewWithT(t)
	hub := fake.New("registry.example/ichor-hub:" + old)
	e := New(hub, old)
	for range 2 {
		outcome, err := e.Do(t.Context(), scope(), unit("Installing", nil), "Installing")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(outcome.ResolvedImage).To(Equal("registry.example/ichor-hub:v0.2.0"))
	}
	g.Expect(hub.Jobs()).To(Equal(1))
	g.Expect(JobName("id")).NotTo(Equal(JobName("another")))
}

func TestWhoMayNotChangeTheTargetStartsNoJob(t *testing.T) {
	g := NewWithT(t)
	hub := fake.New("registry.example/ichor-hub:" + old)
	e := New(hub, old)
	replaced := scope()
	replaced.Guard = func(context.Context) error { return errors.New("another leads") }
	_, err := e.Do(t.Context(), replaced, unit("Installing", nil), "Installing")
	g.Expect(e.Classify(err)).To(Equal(v1alpha1.ErrorInterrupted))
	g.Expect(hub.Jobs()).To(BeZero())
	g.Expect(e.Classify(&installation.Obstacle{Message: "kept by Flux"})).To(Equal(v1alpha1.ErrorPermanent))
}
