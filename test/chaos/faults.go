// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"math/rand/v2"

	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim/fault"
)

// usualWeight is how often a fault is chosen that weights does not name.
const usualWeight = 4

// weights say how often faults are chosen, among all of the table. Zero is never.
var weights = map[string]int{
	fault.Unreachable:   12, // It comes in many shapes.
	fault.InstallerExit: 6,
	fault.Fallback:      6,
	fault.EtcdGivesUp:   0, // Only a control plane without data waits for so long, and no operation of a script wipes one.
}

// choices are values for parameters of which the table does not list all that it accepts.
var choices = map[string]map[string][]string{
	fault.InstallerExit: {fault.ParamCode: {"1", "2", "3", "4", "5", "6", "7"}},
	fault.OtherIdentity: {fault.ParamUUID: {"", "00000000-0000-4000-8000-00000000cafe"}, fault.ParamName: {"", "stranger"}},
	fault.TalosRefused: {fault.ParamMethod: {
		"*", invariant.InstallMethod, invariant.RebootMethod, invariant.LegacyUpgradeMethod, "ImageService/Pull", "MachineService/EtcdForfeitLeadership",
	}},
	fault.ImageMissing:   {fault.ParamImage: {"*", "*/kubelet:*", "*installer/*"}},
	fault.SlowPull:       {fault.ParamDelay: {"500ms", "2s"}},
	fault.ComponentCrash: {fault.ParamComponent: {"*", "kube-apiserver", "kube-scheduler", "kubelet"}},
	fault.SlowRollout:    {fault.ParamName: {"*", "kube-proxy", "web"}, fault.ParamDelay: {"", "1s"}},
	fault.AdmissionRefused: {
		fault.ParamResource: {"*", "nodes", "pods", "daemonsets"},
	},
	fault.KubernetesRefused: {
		fault.ParamMethod: {"*", "GET", "POST", "PATCH", "PUT"}, fault.ParamResource: {"*", "nodes", "pods", "pods/eviction", "configmaps"},
	},
}

// fault chooses one of the table: for one machine mostly, and for the whole cluster sometimes.
func (w *writer) fault() fault.Fault {
	d := choose(w.random, fault.Definitions, weightOf)
	f := fault.Fault{Name: d.Name, Cluster: w.spec.Name, Node: w.node(), Params: params(w.random, d)}
	if w.random.IntN(5) == 0 {
		f.Node = ""
	}
	if !d.Standing {
		f.Times = 1 + w.random.IntN(2)
	}
	return f
}

func weightOf(d fault.Definition) int {
	if weight, ok := weights[d.Name]; ok {
		return weight
	}
	return usualWeight
}

func params(random *rand.Rand, d fault.Definition) map[string]string {
	chosen := map[string]string{}
	for _, p := range d.Params {
		values := p.Values
		if more, ok := choices[d.Name][p.Name]; ok {
			values = more
		}
		if len(values) > 0 {
			chosen[p.Name] = values[random.IntN(len(values))]
		}
	}
	return chosen
}
