// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"cmp"
	_ "embed" // For the table.
	"fmt"

	"github.com/blang/semver/v4"
	"sigs.k8s.io/yaml"
)

//go:embed releases.yaml
var releasesFile []byte

// releases are the release sets that this build knows.
var releases = mustLoad(releasesFile)

// table is which versions go together.
type table struct {
	Talos  []row `json:"talos"`
	Cilium []row `json:"cilium"`
}

// row is what one minor version of Talos or Cilium goes with.
type row struct {
	Minor      minor  `json:"minor"`
	Kubernetes span   `json:"kubernetes"`
	Etcd       string `json:"etcd,omitempty"`
	Source     string `json:"source,omitempty"`
}

// span is a range of minor versions, with both ends.
type span struct {
	From minor `json:"from"`
	To   minor `json:"to"`
}

// minor is a version without its patch level.
type minor struct{ major, minor uint64 }

// mustLoad reads the table, which is a part of the program.
func mustLoad(data []byte) table {
	var t table
	if err := yaml.UnmarshalStrict(data, &t); err != nil {
		panic(fmt.Sprintf("the table of release sets: %v", err))
	}
	return t
}

// minorOf is the minor version of a version; pre-releases of it count.
func minorOf(version semver.Version) minor { return minor{version.Major, version.Minor} }

// UnmarshalText reads a minor version such as 1.36.
func (m *minor) UnmarshalText(text []byte) error {
	version, err := semver.Parse(string(text) + ".0")
	if err != nil {
		return fmt.Errorf("%q is no minor version such as 1.36: %w", text, err)
	}
	*m = minorOf(version)
	return nil
}

// String writes a minor version as people do.
func (m minor) String() string { return fmt.Sprintf("v%d.%d", m.major, m.minor) }

func (m minor) compare(other minor) int {
	return cmp.Or(cmp.Compare(m.major, other.major), cmp.Compare(m.minor, other.minor))
}

// next is the minor version after this one. What follows the last of a major version nobody knows.
func (m minor) next() minor { return minor{m.major, m.minor + 1} }

func (s span) has(m minor) bool { return s.From.compare(m) <= 0 && s.To.compare(m) >= 0 }

// String writes a range as people do.
func (s span) String() string { return fmt.Sprintf("%s to %s", s.From, s.To) }

// rows are the rows about a product; Kubernetes has none of its own.
func (p Product) rows() []row {
	switch p {
	case Talos:
		return releases.Talos
	case Cilium:
		return releases.Cilium
	case Kubernetes:
		return nil
	}
	return nil
}

// row is the row that decides about a minor version.
func (p Product) row(m minor) (row, bool) {
	for _, r := range p.rows() {
		if r.Minor == m {
			return r, true
		}
	}
	return row{}, false
}

// known is what the table knows of a product. Of Kubernetes it is what any Talos runs.
func (p Product) known() span {
	if rows := p.rows(); len(rows) > 0 {
		return span{rows[0].Minor, rows[len(rows)-1].Minor}
	}
	return span{releases.Talos[0].Kubernetes.From, releases.Talos[len(releases.Talos)-1].Kubernetes.To}
}
