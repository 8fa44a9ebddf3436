// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"slices"

	"github.com/blang/semver/v4"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// lastVersion is where the last upgrade brings the machines of a cluster; nothing if no one version follows all that they run.
func lastVersion(running []string) string {
	var minors []uint64
	for _, text := range running {
		version, err := semver.ParseTolerant(text)
		if err != nil {
			return ""
		}
		minors = append(minors, version.Minor)
	}
	switch oldest, newest := slices.Min(minors), slices.Max(minors); {
	case newest > oldest+1:
		return ""
	default:
		return fmt.Sprintf("v1.%d.900", max(newest, min(oldest+1, newestMinor)))
	}
}

// newestMinor is the newest Talos of the ladder.
const newestMinor = 14

// running are the versions that the machines of a cluster run.
func (p *player) running() []string {
	var versions []string
	for _, node := range p.harness.Fleet.Cluster(p.cluster).Nodes() {
		versions = append(versions, node.State().Running.Version)
	}
	return versions
}

// upgradeOnceMore orders the last upgrade of a cluster.
func (p *player) upgradeOnceMore(ctx context.Context) error {
	p.last = lastVersion(p.running())
	if p.last == "" {
		p.log.note("%s: no version follows all of %v", p.cluster, p.running())
		return nil
	}
	if err := p.declare(ctx, p.last); err != nil {
		return fmt.Errorf("declaring the last version of cluster %s: %w", p.cluster, err)
	}
	name, err := p.create(ctx, v1alpha1.TalosOperationSpec{Kind: v1alpha1.TalosKind})
	if err != nil {
		return fmt.Errorf("ordering the last upgrade of cluster %s: %w", p.cluster, err)
	}
	p.log.note("%s: %s goes to %s", p.cluster, name, p.last)
	return nil
}

// behind are the machines that the last upgrade has not brought where it should.
func (p *player) behind() []string {
	if p.last == "" {
		return nil
	}
	var behind []string
	for _, node := range p.harness.Fleet.Cluster(p.cluster).Nodes() {
		if state := node.State(); state.Running.Version != p.last || !state.Ready {
			behind = append(behind, fmt.Sprintf("%s: after the last upgrade to %s, %s runs %s in stage %s", p.cluster, p.last, node.Name(), state.Running.Version, state.Stage))
		}
	}
	return behind
}
