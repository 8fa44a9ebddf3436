// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
)

// Cases C16 and F1: one minor version at a time, only to newer and final ones; and what is there already is no way at all.
func TestCaseC16F1KubernetesUpgrade(t *testing.T) {
	skips := func(from, to, next string) *Objection {
		return &Objection{
			Message: from + " to " + to + " skips " + next + ": go by way of " + next + ", one minor version at a time",
			Help:    "upgrade to the latest " + next + " first",
		}
	}
	for name, row := range map[string]struct {
		from, to string
		want     *Objection
	}{
		"patch":              {"v1.36.0", "v1.36.3", nil},
		"minor":              {"v1.35.4", "v1.36.3", nil},
		"the same":           {"v1.36.3", "v1.36.3", nil},
		"the same without v": {"1.36.3", "v1.36.3", nil},
		"ten after nine":     {"v1.36.9", "v1.36.10", nil},
		"to the final one":   {"v1.36.0-rc.1", "v1.36.0", nil},
		"a build runs":       {"v1.35.2+vendor.1", "v1.36.3", nil},
		"skips a minor":      {"v1.34.2", "v1.36.0", skips("v1.34.2", "v1.36.0", "v1.35")},
		"skips two":          {"v1.33.2", "v1.36.0", skips("v1.33.2", "v1.36.0", "v1.34")},
		"older patch":        {"v1.36.3", "v1.36.2", &Objection{Message: "v1.36.2 is older than the running v1.36.3: a downgrade is no upgrade"}},
		"older minor":        {"v1.36.3", "v1.35.9", &Objection{Message: "v1.35.9 is older than the running v1.36.3: a downgrade is no upgrade"}},
		"not final":          {"v1.35.3", "v1.36.0-rc.1", &Objection{Message: "v1.36.0-rc.1 is not a final version"}},
		"of a vendor":        {"v1.35.3", "v1.36.2-eks-1a2b", &Objection{Message: "v1.36.2-eks-1a2b is not a final version"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			objection, err := KubernetesUpgrade(row.from, row.to)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(objection).To(Equal(row.want))
		})
	}
}

func TestKubernetesUpgradeOfWhatIsNoVersion(t *testing.T) {
	g := NewWithT(t)
	_, err := KubernetesUpgrade("unknown", "v1.36.0")
	g.Expect(err).To(MatchError(ContainSubstring(`"unknown"`)))
	_, err = KubernetesUpgrade("v1.35.1", "1.36")
	g.Expect(err).To(MatchError(ContainSubstring("did you mean 1.36.0?")))
	_, err = KubernetesUpgrade("v1.29.1", "1.3.1")
	g.Expect(err).To(MatchError(ContainSubstring("did you mean v1.30.1 or v1.31.0?")))
	_, err = KubernetesUpgrade("v1.35.1", "v1.36.2+k3s1")
	g.Expect(err).To(MatchError(ContainSubstring("somebody's build")))
}

// Case F8: what this hub does not know yet is another thing than a way that nobody may go.
func TestCaseF8KubernetesNewerThanTheHub(t *testing.T) {
	newest := Kubernetes.known().To
	from := newest.String() + ".1"
	for name, row := range map[string]struct {
		to    string
		knows bool
	}{
		"a later patch of the newest": {newest.String() + ".99", true},
		"the next minor":              {newest.next().String() + ".0", false},
		"a minor that would skip":     {newest.next().next().String() + ".4", false},
		"the next major":              {fmt.Sprintf("v%d.0.0", newest.major+1), false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			objection, err := KubernetesUpgrade(from, row.to)
			g.Expect(err).NotTo(HaveOccurred())
			if row.knows {
				g.Expect(objection).To(BeNil())
				return
			}
			want := fmt.Sprintf("this hub knows Kubernetes up to %s, and not %s", newest, row.to)
			g.Expect(objection).To(Equal(&Objection{Message: want, Help: "upgrade the hub first"}), "nobody may override it")
		})
	}
}

// Cases C15 and F15: the pair after the change is checked, and the refusal names the row that decided.
func TestCaseC15F15KubernetesOn(t *testing.T) {
	for name, row := range map[string]struct {
		talos, kubernetes string
		want              *Objection
	}{
		"inside":    {"v1.14.1", "v1.36.3", nil},
		"lowest":    {"v1.14.1", "v1.32.0", nil},
		"highest":   {"v1.14.1", "v1.37.9", nil},
		"without v": {"1.14.1", "1.36.3", nil},
		"too old": {"v1.14.1", "v1.31.9", &Objection{
			Message: "Talos v1.14.1 does not support Kubernetes v1.31.9: Talos v1.14 goes with Kubernetes v1.32 to v1.37", Help: "choose Kubernetes v1.32 to v1.37",
		}},
		"too new": {"v1.12.4", "v1.36.0", &Objection{
			Message: "Talos v1.12.4 does not support Kubernetes v1.36.0: Talos v1.12 goes with Kubernetes v1.30 to v1.35", Help: "upgrade Talos to v1.13 first",
		}},
		"newer than the hub": {"v1.14.1", "v1.38.0", &Objection{Message: "this hub knows Kubernetes up to v1.37, and not v1.38.0", Help: "upgrade the hub first"}},
		"Talos newer":        {"v1.15.0", "v1.36.0", &Objection{Message: "this hub knows Talos up to v1.14, and not v1.15.0", Help: "upgrade the hub first"}},
		"Talos older": {"v1.10.9", "v1.30.0", &Objection{
			Message: "Talos v1.10.9 is older than any that this hub knows (v1.11 to v1.14)", Help: "upgrade Talos to v1.11 first",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			objection, err := KubernetesOn(row.talos, row.kubernetes)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(objection).To(Equal(row.want))
		})
	}
	t.Run("no versions", func(t *testing.T) {
		g := NewWithT(t)
		_, err := KubernetesOn("v1.14", "v1.36.3")
		g.Expect(err).To(HaveOccurred())
		_, err = KubernetesOn("v1.14.1", "new")
		g.Expect(err).To(MatchError(ContainSubstring(`"new"`)))
	})
}

// Case C15, the other way around: a Talos that comes under a Kubernetes which is there already may be forced, and the plan says what helps.
func TestCaseC15TalosUnder(t *testing.T) {
	g := NewWithT(t)
	objection, err := TalosUnder("v1.14.1", "v1.31.9")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(objection).To(Equal(&Objection{
		Message: "Talos v1.14.1 does not support the running Kubernetes v1.31.9: Talos v1.14 goes with Kubernetes v1.32 to v1.37", Overridable: true,
	}))
	objection, err = TalosUnder("v1.14.1", "v1.38.0")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(objection).To(Equal(&Objection{
		Message: "this hub knows Kubernetes up to v1.37, and not v1.38.0", Help: "upgrade the hub first", Overridable: true,
	}))
	objection, err = TalosUnder("v1.14.1", "v1.36.0")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(objection).To(BeNil())
	_, err = TalosUnder("v1.14.1", "")
	g.Expect(err).To(HaveOccurred())
}

func TestCiliumOn(t *testing.T) {
	for name, row := range map[string]struct {
		cilium, kubernetes string
		want               *Objection
	}{
		"inside":  {"1.20.2", "v1.36.0", nil},
		"lowest":  {"v1.18.0", "v1.30.9", nil},
		"too new": {"v1.18.4", "v1.34.0", &Objection{Overridable: true, Message: "Cilium v1.18.4 is not tested with Kubernetes v1.34.0: Cilium v1.18 goes with Kubernetes v1.30 to v1.33", Help: "upgrade Cilium to v1.19 first"}},
		"too new for all": {"1.20.2", "v1.37.0", &Objection{
			Overridable: true, Message: "Cilium 1.20.2 is not tested with Kubernetes v1.37.0: Cilium v1.20 goes with Kubernetes v1.33 to v1.36", Help: "choose Kubernetes v1.33 to v1.36",
		}},
		"too old":            {"v1.20.2", "v1.32.0", &Objection{Overridable: true, Message: "Cilium v1.20.2 is not tested with Kubernetes v1.32.0: Cilium v1.20 goes with Kubernetes v1.33 to v1.36", Help: "choose Kubernetes v1.33 to v1.36"}},
		"newer than the hub": {"v1.21.0", "v1.36.0", &Objection{Overridable: true, Message: "this hub knows Cilium up to v1.20, and not v1.21.0", Help: "upgrade the hub first"}},
		"older than all":     {"v1.15.9", "v1.30.0", &Objection{Overridable: true, Message: "Cilium v1.15.9 is older than any that this hub knows (v1.16 to v1.20)", Help: "upgrade Cilium to v1.16 first"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			objection, err := CiliumOn(row.cilium, row.kubernetes)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(objection).To(Equal(row.want))
		})
	}
	_, err := CiliumOn("latest", "v1.36.0")
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring(`"latest"`)))
}

// Whatever versions there are, a judgement is one of the two, and what may follow is newer, final, known and at most one minor away.
func FuzzKubernetesUpgrade(f *testing.F) {
	f.Add("v1.35.1", "v1.36.3")
	f.Add("v1.36.3", "v1.35.1")
	f.Add("1.30.0", "1.3.1")
	f.Add("v1.36.0-rc.1", "v1.36.0+k3s1")
	f.Fuzz(func(t *testing.T, from, to string) {
		objection, err := KubernetesUpgrade(from, to)
		if err != nil || objection != nil {
			return
		}
		before, after := mustParse(t, from), mustParse(t, to)
		if after.LT(before) || len(after.Pre)+len(after.Build) > 0 || minorOf(after).compare(Kubernetes.known().To) > 0 || minorOf(after).compare(minorOf(before).next()) > 0 {
			t.Fatalf("%q may follow %q", to, from)
		}
	})
}

func FuzzKubernetesOn(f *testing.F) {
	f.Add("v1.14.1", "v1.36.3")
	f.Add("v1.13.6", "v1.20.0")
	f.Add("1.14", "v1.36")
	f.Fuzz(func(t *testing.T, talos, kubernetes string) {
		objection, err := KubernetesOn(talos, kubernetes)
		if _, bad := Parse(kubernetes); err == nil && bad != nil {
			t.Fatalf("%q on %q: %v", kubernetes, talos, objection)
		}
	})
}
