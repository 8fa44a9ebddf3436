// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/target"
)

// credential is what a probe found out about one of the two credentials of a target.
type credential struct {
	// reason and message say what is wrong, or soon will be; nothing if all is well.
	reason, message string

	// unusable is true where there is no use in asking the target with it, or where the target did not accept it.
	unusable bool
}

// What conditions say that cannot be observed without a credential.
const (
	unusableKubeconfig  = "the kubeconfig cannot be used"
	unusableTalosconfig = "the talosconfig cannot be used"
)

// checkCredentials judges both credentials by themselves, and returns the server that the kubeconfig names.
func (p prober) checkCredentials(ctx context.Context, t target.Target, seen *probe) (server string) {
	now := p.clock.Now()
	kubeconfig, err := p.credentials.Kubeconfig(ctx, t)
	if err != nil {
		seen.kubeconfig = unreadable(err)
	} else {
		seen.kubeconfig = judged("kubeconfig", kubeconfig, now)
		server = kubeconfig.Config.Host
	}
	talosconfig, err := p.credentials.Talosconfig(ctx, t)
	if err != nil {
		seen.talosconfig = unreadable(err)
	} else {
		seen.talosconfig = judged("talosconfig", talosconfig, now)
	}
	return server
}

func unreadable(err error) credential {
	if errors.Is(err, credentials.ErrMissing) {
		return credential{v1alpha1.CredentialsMissingReason, err.Error(), true}
	}
	return credential{v1alpha1.CredentialsInvalidReason, err.Error(), true}
}

// judged is what a credential that can be read is worth now.
func judged(file string, c interface {
	Check(now time.Time) *credentials.Problem
	Warning(now time.Time) *credentials.Problem
}, now time.Time) credential {
	if problem := c.Check(now); problem != nil {
		return credential{problem.Reason, file + ": " + problem.Message, true}
	}
	if warning := c.Warning(now); warning != nil {
		return credential{warning.Reason, file + ": " + warning.Message, false}
	}
	return credential{}
}

// setCredentialsValid speaks of both credentials, and takes its reason from the worse one.
func setCredentialsValid(cluster *v1alpha1.TalosCluster, seen probe) {
	status, reason := metav1.ConditionTrue, v1alpha1.CredentialsValidReason
	var messages []string
	for _, unusable := range []bool{true, false} {
		for _, c := range []credential{seen.kubeconfig, seen.talosconfig} {
			if c.reason == "" || c.unusable != unusable {
				continue
			}
			if len(messages) == 0 {
				reason = c.reason
			}
			if unusable {
				status = metav1.ConditionFalse
			}
			messages = append(messages, c.message)
		}
	}
	set(cluster, v1alpha1.CredentialsValidCondition, status, reason, strings.Join(messages, "; "))
}
