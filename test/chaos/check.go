// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/test/harness"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim/fault"
)

const (
	// grace is for how long the hub may not have noticed that a machine lost its power: the time from its look at the cluster to the
	// call that follows, on processors that do much else.
	grace = 5 * time.Second

	// leaving is how long what is over may take to put its things away.
	leaving = time.Minute
)

// check looks for everything that must not be.
func (r *run) check(ctx context.Context) error {
	for _, p := range r.players {
		for _, problem := range r.rules(p).Violations(r.harness.Journal()) {
			r.log.problem("%s: %s", p.cluster, problem)
		}
		for _, problem := range p.behind() {
			r.log.problem("%s", problem)
		}
		left, err := r.leftovers(ctx, p)
		if err != nil {
			return err
		}
		for _, problem := range left {
			r.log.problem("%s", problem)
		}
	}
	return nil
}

func (r *run) rules(p *player) invariant.Rules {
	rules := r.harness.Rules(p.cluster)
	rules.MaxUnavailable, rules.Grace = mostUnavailable, grace
	rules.Unheard = func(_ string, from, to time.Time) bool {
		for _, at := range r.interrupted {
			if !at.Before(from) && !at.After(to) {
				return true
			}
		}
		return p.cut(from, to)
	}
	return rules
}

// cutting are the faults that keep the hub from hearing how its calls end.
var cutting = map[string]bool{
	fault.Unreachable: true, fault.InstallerCut: true, fault.TalosRefused: true, fault.ServerCertificate: true, fault.ClientCertificate: true,
}

// cut says whether a fault of that sort was in force between two moments.
func (p *player) cut(from, to time.Time) bool {
	for _, f := range p.faults {
		if cutting[f.fault.Name] && f.from.Before(to) && (f.to.IsZero() || f.to.After(from)) {
			return true
		}
	}
	return false
}

// leftovers waits until nothing is left, and says what is left if that does not come.
func (r *run) leftovers(ctx context.Context, p *player) ([]string, error) {
	target, err := r.target(p.cluster)
	if err != nil {
		return nil, err
	}
	rest := invariant.Rest{Management: r.harness.Client, Target: target, Cluster: client.ObjectKey{Namespace: harness.Namespace, Name: p.cluster}}
	for deadline := time.Now().Add(leaving); ; {
		left, err := rest.Leftovers(ctx)
		if (err == nil && len(left) == 0) || time.Now().After(deadline) || !until(ctx, time.Now().Add(look)) {
			return left, err
		}
	}
}

// target is an administrator's access to a cluster.
func (r *run) target(cluster string) (kubernetes.Interface, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(r.harness.Fleet.Cluster(cluster).Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of cluster %s: %w", cluster, err)
	}
	return kubernetes.NewForConfig(config)
}
