// SPDX-License-Identifier: Apache-2.0

package versions

import "fmt"

// KubernetesUpgrade says what speaks against going from one Kubernetes version to another; nil means nothing. Equal versions are no upgrade,
// and nothing speaks against them: who finds them has nothing to do.
func KubernetesUpgrade(from, to string) (*Objection, error) {
	fromVersion, err := Parse(from)
	if err != nil {
		return nil, err
	}
	toVersion, err := Kubernetes.Parse(to)
	if err != nil {
		return nil, err
	}
	if objection := Kubernetes.step(fromVersion, toVersion, from, to); objection != nil {
		return objection, nil
	}
	// The skew policy of Kubernetes rules it out: API servers would be two minor versions apart while they are replaced.
	if next := minorOf(fromVersion).next(); minorOf(toVersion).compare(next) > 0 {
		return &Objection{
			Message: fmt.Sprintf("%s to %s skips %s: go by way of %[3]s, one minor version at a time", from, to, next),
			Help:    fmt.Sprintf("upgrade to the latest %s first", next),
		}, nil
	}
	return nil, nil
}

// KubernetesOn says what speaks against bringing a Kubernetes version to a machine of a Talos version; nil means nothing. Nobody may
// override it: the machine itself would refuse the config.
func KubernetesOn(talos, kubernetes string) (*Objection, error) {
	return fit(Talos, talos, kubernetes, "does not support Kubernetes")
}

// TalosUnder says what speaks against bringing a Talos version under the Kubernetes that runs already; nil means nothing. The machines
// come back with it, so it may be overridden; but then they take no config until Kubernetes is in the range.
func TalosUnder(talos, kubernetes string) (*Objection, error) {
	objection, err := fit(Talos, talos, kubernetes, "does not support the running Kubernetes")
	if objection == nil {
		return nil, err
	}
	objection.Overridable = true
	if objection.Help != hubFirst { // Which of the two has to change is the order's to say, and not the table's.
		objection.Help = ""
	}
	return objection, nil
}

// CiliumOn says what speaks against running a Cilium version on a Kubernetes version; nil means nothing. Cilium promises nothing for
// versions that are not in its list and forbids none, so it may be overridden.
func CiliumOn(cilium, kubernetes string) (*Objection, error) {
	objection, err := fit(Cilium, cilium, kubernetes, "is not tested with Kubernetes")
	if objection != nil {
		objection.Overridable = true
	}
	return objection, err
}

// fit judges by the row of the table that decides whether a version of a product goes with a version of Kubernetes.
func fit(p Product, text, kubernetes, fails string) (*Objection, error) {
	version, on, err := both(text, kubernetes)
	if err != nil {
		return nil, err
	}
	for _, known := range []*Objection{p.beyond(version, text), Kubernetes.beyond(on, kubernetes)} {
		if known != nil {
			return known, nil
		}
	}
	decides, known := p.row(minorOf(version))
	switch {
	case !known:
		return &Objection{
			Message: fmt.Sprintf("%s %s is older than any that this hub knows (%s)", p, text, p.known()),
			Help:    fmt.Sprintf("upgrade %s to %s first", p, p.known().From),
		}, nil
	case decides.Kubernetes.has(minorOf(on)):
		return nil, nil
	}
	return &Objection{
		Message: fmt.Sprintf("%s %s %s %s: %[1]s %[5]s goes with Kubernetes %[6]s", p, text, fails, kubernetes, decides.Minor, decides.Kubernetes),
		Help:    p.wayOut(decides, minorOf(on)),
	}, nil
}

// wayOut says what to do where a version of Kubernetes is not in the row that decides.
func (p Product) wayOut(decides row, kubernetes minor) string {
	for _, r := range p.rows() {
		if decides.Kubernetes.To.compare(kubernetes) < 0 && r.Kubernetes.has(kubernetes) {
			return fmt.Sprintf("upgrade %s to %s first", p, r.Minor)
		}
	}
	return fmt.Sprintf("choose Kubernetes %s", decides.Kubernetes)
}
