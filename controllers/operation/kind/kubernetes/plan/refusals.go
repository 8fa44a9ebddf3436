// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/controllers/versions"
)

// oldestKubelet is how many minor versions a kubelet may be behind the API servers.
const oldestKubelet = 3

func refusals(facts plan.Facts, taken []*v1alpha1.TalosMachine) (refused, overridden []plan.Refusal) {
	if facts.Target.KubernetesVersion == "" {
		return []plan.Refusal{{
			Gate:    v1alpha1.TargetDeclaredGate,
			Message: fmt.Sprintf("TalosCluster %s declares no kubernetesVersion", facts.Cluster.Name),
			Help:    fmt.Sprintf("ichor upgrade kubernetes VERSION --cluster %s", facts.Cluster.Name),
		}}, nil
	}
	if len(facts.Approved()) == 0 {
		return []plan.Refusal{{
			Gate:    v1alpha1.MachineKnownGate,
			Message: fmt.Sprintf("cluster %s has no approved machine", facts.Cluster.Name),
			Help:    fmt.Sprintf("see what keeps them from being found: ichor cluster get %s", facts.Cluster.Name),
		}}, nil
	}
	if list := slices.Concat(
		owned(facts, taken), // Cluster API would undo it, or replace the machines for it.
		path(facts, taken),  // API servers go one minor version at a time, and never back.
	); len(list) > 0 {
		return list, nil // What else is wrong with a version that nobody can have does not help.
	}
	for _, check := range []func(plan.Facts, []*v1alpha1.TalosMachine) []plan.Refusal{
		kubelets,   // A kubelet is never newer than an API server, nor much older.
		talosFit,   // Talos has to know how to run it.
		ciliumFit,  // And the network has to go with it.
		heldBehind, // An API server that stays behind holds up everything that asks it.
	} {
		for _, r := range check(facts, taken) {
			if r.Overridable && facts.Overridden(r.Gate) {
				overridden = append(overridden, r)
			} else {
				refused = append(refused, r)
			}
		}
	}
	return refused, overridden
}

// owned refuses a version that Cluster API says: it is changed there, and the provider of the control plane brings it about.
func owned(facts plan.Facts, _ []*v1alpha1.TalosMachine) []plan.Refusal {
	cluster := facts.CAPICluster
	if cluster == nil {
		return nil
	}
	if cluster.Spec.Topology.IsDefined() {
		return []plan.Refusal{{
			Gate:    v1alpha1.KubernetesVersionOwnedGate,
			Message: fmt.Sprintf("the version of Kubernetes of Cluster %s is its topology's (spec.topology.version): Cluster API would undo any other change", cluster.Name),
			Help:    patch("cluster", cluster, fmt.Sprintf(`{"spec":{"topology":{"version":%q}}}`, facts.Target.KubernetesVersion)),
		}}
	}
	if owner := cluster.Spec.ControlPlaneRef; owner.IsDefined() {
		resource := strings.ToLower(owner.Kind) + "." + owner.APIGroup
		named := &clusterv1.Cluster{}
		named.Name, named.Namespace = owner.Name, cluster.Namespace
		return []plan.Refusal{{
			Gate:    v1alpha1.KubernetesVersionOwnedGate,
			Message: fmt.Sprintf("the version of Kubernetes of Cluster %s is that of %s %s (spec.version), which replaces machines to change it", cluster.Name, owner.Kind, owner.Name),
			Help:    patch(resource, named, fmt.Sprintf(`{"spec":{"version":%q}}`, facts.Target.KubernetesVersion)) + ", and then the MachineDeployments",
		}}
	}
	return nil
}

// patch is the command that changes an object of Cluster API.
func patch(resource string, object *clusterv1.Cluster, change string) string {
	return fmt.Sprintf("change it there: kubectl patch %s %s -n %s --type merge -p '%s'", resource, object.Name, object.Namespace, change)
}

// path judges the way from what the API servers run, or else from what kubelets run. Where nobody knows, what is declared must not go down.
func path(facts plan.Facts, taken []*v1alpha1.TalosMachine) []plan.Refusal {
	running, target := cmp.Or(facts.Cluster.Status.KubernetesVersion, newestKubelet(taken)), facts.Target.KubernetesVersion
	if running == "" {
		return unknown(facts)
	}
	return objection(v1alpha1.KubernetesVersionPathGate, "", func() (*versions.Objection, error) { return versions.KubernetesUpgrade(running, target) },
		"choose a version that follows the running one")
}

func unknown(facts plan.Facts) []plan.Refusal {
	declared, target := facts.Cluster.Spec.KubernetesVersion, facts.Target.KubernetesVersion
	if declared == "" || versions.Compare(declared, target) <= 0 {
		return nil
	}
	return []plan.Refusal{{
		Gate:    v1alpha1.KubernetesVersionPathGate,
		Message: fmt.Sprintf("TalosCluster %s declares Kubernetes %s, and nobody tells what it runs: %s may be a downgrade", facts.Cluster.Name, declared, target),
		Help:    fmt.Sprintf("see why it is not known: ichor cluster get %s", facts.Cluster.Name),
	}}
}

func newestKubelet(machines []*v1alpha1.TalosMachine) string {
	newest := ""
	for _, machine := range machines {
		if running := machine.Status.KubeletVersion; newest == "" || versions.Compare(running, newest) > 0 {
			newest = running
		}
	}
	return newest
}

// kubelets refuses what would be a downgrade of one, and what would leave one behind by more than Kubernetes supports.
func kubelets(facts plan.Facts, _ []*v1alpha1.TalosMachine) []plan.Refusal {
	target, err := versions.Parse(facts.Target.KubernetesVersion)
	if err != nil {
		return nil // The way says so.
	}
	var list []plan.Refusal
	for _, machine := range facts.Approved() {
		running, err := versions.Parse(machine.Status.KubeletVersion)
		switch {
		case err != nil: // Not known yet; it is looked at again when it is its turn.
		case running.GT(target):
			list = append(list, plan.Refusal{
				Gate:    v1alpha1.KubernetesVersionPathGate,
				Message: fmt.Sprintf("%s runs kubelet %s, and %s is older: a downgrade is no upgrade", machine.Name, machine.Status.KubeletVersion, facts.Target.KubernetesVersion),
				Help:    fmt.Sprintf("choose %s or newer", machine.Status.KubeletVersion),
			})
		case running.Minor+oldestKubelet < target.Minor:
			list = append(list, plan.Refusal{
				Gate: v1alpha1.KubernetesVersionPathGate,
				Message: fmt.Sprintf("%s runs kubelet %s: API servers of %s talk to none that is more than %d minor versions older",
					machine.Name, machine.Status.KubeletVersion, facts.Target.KubernetesVersion, oldestKubelet),
				Help: fmt.Sprintf("bring its kubelet up to the version of the API servers first; see: ichor machine get %s", machine.Name),
			})
		}
	}
	return list[:min(len(list), 1)] // The first is enough to know what is wrong.
}

// talosFit asks the Talos of every machine, once for each version.
func talosFit(facts plan.Facts, taken []*v1alpha1.TalosMachine) []plan.Refusal {
	var list []plan.Refusal
	var asked []string
	for _, machine := range taken {
		running := machine.Status.TalosVersion
		if running == "" || slices.Contains(asked, running) {
			continue
		}
		asked = append(asked, running)
		list = append(list, objection(v1alpha1.KubernetesPairingGate, machine.Name+": ", func() (*versions.Objection, error) {
			return versions.KubernetesOn(running, facts.Target.KubernetesVersion)
		}, "upgrade Talos first")...)
	}
	return list
}

func ciliumFit(facts plan.Facts, _ []*v1alpha1.TalosMachine) []plan.Refusal {
	if facts.Cluster.Spec.CNI == nil || facts.Cluster.Spec.CNI.CiliumVersion == "" {
		return nil
	}
	return objection(v1alpha1.CiliumPairingGate, "", func() (*versions.Objection, error) {
		return versions.CiliumOn(facts.Cluster.Spec.CNI.CiliumVersion, facts.Target.KubernetesVersion)
	}, "upgrade Cilium first")
}

// objection is what the rules about versions say, as a refusal.
func objection(gate, about string, ask func() (*versions.Objection, error), help string) []plan.Refusal {
	found, err := ask()
	if err != nil {
		found = &versions.Objection{Message: err.Error()}
	}
	if found == nil {
		return nil
	}
	return []plan.Refusal{{Gate: gate, Message: about + found.Message, Help: cmp.Or(found.Help, help), Overridable: found.Overridable}}
}

func heldBehind(facts plan.Facts, _ []*v1alpha1.TalosMachine) []plan.Refusal {
	var held []string
	for _, machine := range facts.Approved() {
		if machine.Held() && machine.Spec.Role == v1alpha1.ControlPlaneRole {
			held = append(held, machine.Name)
		}
	}
	if len(held) == 0 {
		return nil
	}
	slices.Sort(held)
	return []plan.Refusal{{
		Gate:    v1alpha1.ControlPlaneHeldGate,
		Message: fmt.Sprintf("control plane %s is held: its API server would stay behind, and nothing that asks it may be newer", strings.Join(held, ", ")),
		Help:    fmt.Sprintf("ichor machine unhold %s --cluster %s", held[0], facts.Cluster.Name),
	}}
}
