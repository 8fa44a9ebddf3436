// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"

	"ichor.maesh.dev/hub/test/sim/component"
	"ichor.maesh.dev/hub/test/sim/journal"
)

// ComponentEvent is how the journal tells that a part of Kubernetes has come up in another version than before; its message is the
// part's name and its version.
const ComponentEvent = "event component"

// Component is one part of Kubernetes on one node.
type Component struct {
	// Name is that of the part, such as "kube-apiserver", and Node where it runs.
	Name, Node string
}

// Change is one change of a component's version.
type Change struct {
	Component

	// Version is the new one.
	Version string

	// Sequence and Time are those of the journal's entry.
	Sequence uint64
	Time     time.Time
}

// Skew is the version skew policy of Kubernetes on one cluster: what holds at every moment of an upgrade.
type Skew struct {
	// Cluster is the cluster's name.
	Cluster string

	// ControlPlanes and Workers are the names of its nodes.
	ControlPlanes, Workers []string

	// From is the version that everything had at first, such as "v1.35.2".
	From string

	// After leaves out what happened up to a sequence of the journal.
	After uint64
}

// Changes are all changes of versions in their order.
func (s Skew) Changes(j *journal.Journal) []Change {
	var changes []Change
	for _, entry := range j.Entries(journal.Filter{Cluster: s.Cluster, Method: ComponentEvent, After: s.After}) {
		name, version, _ := strings.Cut(entry.Message, " ")
		changes = append(changes, Change{
			Component: Component{Name: name, Node: entry.Node}, Version: version, Sequence: entry.Sequence, Time: entry.Time,
		})
	}
	return changes
}

// Versions are those that the components have after all changes.
func (s Skew) Versions(j *journal.Journal) map[Component]string {
	versions := s.first()
	for _, change := range s.Changes(j) {
		versions[change.Component] = change.Version
	}
	return versions
}

func (s Skew) first() map[Component]string {
	versions := map[Component]string{}
	for _, node := range s.ControlPlanes {
		for _, name := range component.StaticPods {
			versions[Component{Name: name, Node: node}] = s.From
		}
	}
	for _, node := range slices.Concat(s.ControlPlanes, s.Workers) {
		versions[Component{Name: component.Kubelet, Node: node}] = s.From
		versions[Component{Name: component.Proxy, Node: node}] = s.From
	}
	return versions
}

// Violations says after which changes the policy did not hold.
func (s Skew) Violations(j *journal.Journal) []string {
	versions := s.first()
	var problems []string
	for _, change := range s.Changes(j) {
		versions[change.Component] = change.Version
		for _, problem := range skewProblems(versions) {
			problems = append(problems, fmt.Sprintf("#%d %s on %s is %s: %s", change.Sequence, change.Name, change.Node, change.Version, problem))
		}
	}
	return problems
}

// older is for how many minors a part may be older than an API server.
var older = map[string]int{component.ControllerManager: 1, component.Scheduler: 1, component.Kubelet: 3, component.Proxy: 3}

// kubeletSkew is for how many minors kube-proxy may differ from the kubelet beside it.
const kubeletSkew = 3

// skewProblems says what is wrong with versions that are there at one moment. Any part may talk to any API server.
func skewProblems(versions map[Component]string) []string {
	oldest, newest := apiServers(versions)
	var problems []string
	if newest-oldest > 1 {
		problems = append(problems, fmt.Sprintf("API servers of the minors %d and %d serve side by side", oldest, newest))
	}
	for _, c := range slices.SortedFunc(maps.Keys(versions), func(a, b Component) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Name, b.Name))
	}) {
		most, limited := older[c.Name]
		if !limited {
			continue
		}
		minor := minorOf(versions[c])
		if minor > oldest {
			problems = append(problems, fmt.Sprintf("%s on %s is %s and newer than an API server of the minor %d", c.Name, c.Node, versions[c], oldest))
		}
		if newest-minor > most {
			problems = append(problems, fmt.Sprintf("%s on %s is %s and too old for an API server of the minor %d", c.Name, c.Node, versions[c], newest))
		}
		beside, ok := versions[Component{Name: component.Kubelet, Node: c.Node}]
		if distance := minor - minorOf(beside); c.Name == component.Proxy && ok && (distance > kubeletSkew || -distance > kubeletSkew) {
			problems = append(problems, fmt.Sprintf("%s on %s is %s beside a kubelet %s", c.Name, c.Node, versions[c], beside))
		}
	}
	return problems
}

func apiServers(versions map[Component]string) (oldest, newest int) {
	var minors []int
	for c, version := range versions {
		if c.Name == component.APIServer {
			minors = append(minors, minorOf(version))
		}
	}
	if len(minors) == 0 {
		return 0, 0
	}
	return slices.Min(minors), slices.Max(minors)
}

// minorOf is the minor of Kubernetes 1; what is no version is the oldest of all.
func minorOf(version string) int {
	parsed, err := semver.ParseTolerant(version)
	if err != nil {
		return 0
	}
	return int(parsed.Minor)
}
