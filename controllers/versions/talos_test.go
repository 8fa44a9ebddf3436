// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"fmt"
	"testing"

	"github.com/blang/semver/v4"
	. "github.com/onsi/gomega"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/gendata"
)

func TestHasLifecycleAPI(t *testing.T) {
	for version, want := range map[string]bool{
		"1.12.9": false, "1.13.0-beta.1": true, "1.13.0": true, "1.14.1": true, "2.0.0": true,
	} {
		NewWithT(t).Expect(HasLifecycleAPI(semver.MustParse(version))).To(Equal(want), version)
	}
}

// The oldest Talos that is upgraded comes from the table of the first one with the new API, and has etcd 3.6: older ones are a way of their own (B13).
func TestUpgradeable(t *testing.T) {
	for version, want := range map[string]bool{
		"1.10.9": false, "1.11.0-rc.0": true, "1.11.0": true, "1.12.4": true, "1.13.0": true, "2.0.0": true,
	} {
		NewWithT(t).Expect(Upgradeable(semver.MustParse(version))).To(Equal(want), version)
	}
}

func TestEtcd(t *testing.T) {
	for version, want := range map[string]string{
		"1.10.9": "", "1.11.0": "3.6", "1.12.4": "3.6", "1.13.9": "3.6", "1.14.0-rc.1": "3.7", "1.14.1": "3.7",
	} {
		NewWithT(t).Expect(Etcd(semver.MustParse(version))).To(Equal(want), version)
	}
}

// Case C16: a path that nobody may take is refused, one that nobody has tested may be overridden.
func TestCaseC16TalosUpgrade(t *testing.T) {
	for name, row := range map[string]struct {
		from, to    string
		message     string
		overridable bool
	}{
		"patch":                 {from: "v1.14.0", to: "v1.14.1"},
		"minor":                 {from: "v1.13.9", to: "v1.14.1"},
		"to the new API":        {from: "v1.12.4", to: "v1.13.9"},
		"below the new API":     {from: "v1.11.2", to: "v1.12.4"},
		"skips 1.12":            {from: "v1.11.2", to: "v1.13.9", message: "go by way of the latest v1.12 first", overridable: true},
		"from too far below":    {from: "v1.10.9", to: "v1.13.9", message: "v1.13.9 does not follow v1.10.9"},
		"the same":              {from: "v1.14.1", to: "v1.14.1"},
		"from a pre-release":    {from: "v1.14.0-rc.1", to: "v1.14.0"},
		"ten after nine":        {from: "v1.14.9", to: "v1.14.10"},
		"not final":             {from: "v1.13.9", to: "v1.14.0-rc.1", message: "v1.14.0-rc.1 is not a final version"},
		"older patch":           {from: "v1.14.1", to: "v1.14.0", message: "v1.14.0 is older than the running v1.14.1"},
		"older minor":           {from: "v1.14.1", to: "v1.13.9", message: "a downgrade is no upgrade"},
		"older major":           {from: "v1.14.1", to: "v0.99.0", message: "v0.99.0 is older than the running v1.14.1"},
		"skips a minor":         {from: "v1.12.4", to: "v1.14.1", message: "go by way of the latest v1.13 first", overridable: true},
		"skips two":             {from: "v1.11.4", to: "v1.14.1", message: "v1.14.1 does not follow v1.11.4"},
		"nobody knows the host": {from: "v0.14.0", to: "v1.14.1", message: "v1.14.1 does not follow v0.14.0"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			objection, err := TalosUpgrade(row.from, row.to)
			g.Expect(err).NotTo(HaveOccurred())
			if row.message == "" {
				g.Expect(objection).To(BeNil())
				return
			}
			g.Expect(objection).NotTo(BeNil())
			g.Expect(objection.Message).To(ContainSubstring(row.message))
			g.Expect(objection.Overridable).To(Equal(row.overridable))
			g.Expect(objection.Help).To(BeEmpty(), "no other hub would do it")
		})
	}
}

// Case F8: what this hub does not know yet, a newer hub may.
func TestCaseF8NewerThanTheHub(t *testing.T) {
	newest := mustParse(t, gendata.VersionTag)
	from := fmt.Sprintf("v%d.%d.0", newest.Major, newest.Minor)
	for name, row := range map[string]struct {
		to    string
		knows bool
	}{
		"the newest minor":        {fmt.Sprintf("v%d.%d.0", newest.Major, newest.Minor), true},
		"a later patch of it":     {fmt.Sprintf("v%d.%d.%d", newest.Major, newest.Minor, newest.Patch+9), true},
		"the next minor":          {fmt.Sprintf("v%d.%d.0", newest.Major, newest.Minor+1), false},
		"the minor after that":    {fmt.Sprintf("v%d.%d.4", newest.Major, newest.Minor+2), false},
		"the next major, minor 0": {fmt.Sprintf("v%d.0.0", newest.Major+1), false},
		"the next major":          {fmt.Sprintf("v%d.%d.0", newest.Major+1, newest.Minor+1), false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			objection, err := TalosUpgrade(from, row.to)
			g.Expect(err).NotTo(HaveOccurred())
			if row.knows {
				g.Expect(objection).To(BeNil())
				return
			}
			g.Expect(objection).To(Equal(&Objection{Message: fmt.Sprintf(
				"this hub knows Talos up to v%d.%d, and not %s", newest.Major, newest.Minor, row.to), Help: "upgrade the hub first"}), "nobody may override it")
		})
	}
}

func TestTalosUpgradeOfWhatIsNoVersion(t *testing.T) {
	g := NewWithT(t)
	_, err := TalosUpgrade("unknown", "v1.14.1")
	g.Expect(err).To(MatchError(ContainSubstring(`"unknown"`)))
	_, err = TalosUpgrade("v1.14.1", "1.15")
	g.Expect(err).To(MatchError(ContainSubstring("did you mean 1.15.0?")))
}

// A path is antisymmetric: if one version may follow another that is not the same, the other may not follow it.
func TestTalosUpgradeGoesOneWay(t *testing.T) {
	g := NewWithT(t)
	all := []string{"v1.11.6", "v1.12.0", "v1.12.4", "v1.13.0", "v1.13.9", "v1.14.0", "v1.14.1"}
	for i, from := range all {
		for j, to := range all {
			objection, err := TalosUpgrade(from, to)
			g.Expect(err).NotTo(HaveOccurred())
			switch {
			case j < i:
				g.Expect(objection).NotTo(BeNil(), "%s to %s", from, to)
			case j == i:
				g.Expect(objection).To(BeNil(), "%s to %s", from, to)
			}
		}
	}
}

// A contract goes on to what machinery takes for that of the version, since configs are made by its rules. It never goes back.
func TestContractFor(t *testing.T) {
	for name, row := range map[string]struct{ talos, contract, want string }{
		"a newer minor":    {"v1.14.1", "v1.13", "v1.14"},
		"two minors":       {"v1.14.1", "v1.12", "v1.14"},
		"a pre-release":    {"1.14.0-rc.1", "v1.13", "v1.14"},
		"a patch":          {"v1.14.2", "v1.14", ""},
		"older Talos":      {"v1.13.9", "v1.14", ""},
		"no contract":      {"v1.14.1", "", ""},
		"not a contract":   {"v1.14.1", "v1.13.2", ""},
		"not a version":    {"v1.14", "v1.13", ""},
		"ten follows nine": {"v1.10.0", "v1.9", "v1.10"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got := ContractFor(row.talos, row.contract)
			g.Expect(got).To(Equal(row.want))
			if got != "" {
				contract, err := config.ParseContractFromVersion(row.talos)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(got).To(Equal(contract.String()))
			}
		})
	}
}

// Whatever a machine says that it runs, an upgrade is judged and not crashed.
func FuzzTalosUpgrade(f *testing.F) {
	f.Add("v1.13.6", "v1.14.1")
	f.Add("v1.12.0", "v1.14.1")
	f.Add("v1.14.1", "v1.13.6")
	f.Add("v1.13.0-beta.1", "v1.14.0-alpha.0")
	f.Add("", "v99.0.0")
	f.Fuzz(func(t *testing.T, from, to string) {
		objection, err := TalosUpgrade(from, to)
		if err != nil || objection != nil {
			return
		}
		before, after := mustParse(t, from), mustParse(t, to)
		if after.LT(before) || len(after.Pre) > 0 || minorOf(after).compare(Talos.known().To) > 0 {
			t.Fatalf("%q may follow %q", to, from)
		}
	})
}
