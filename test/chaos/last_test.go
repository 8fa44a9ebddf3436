// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestLastVersion(t *testing.T) {
	for name, row := range map[string]struct {
		running []string
		want    string
	}{
		"all the same":          {[]string{"v1.13.4", "v1.13.4"}, "v1.14.900"},
		"one of them old":       {[]string{"v1.12.4", "v1.13.4"}, "v1.13.900"},
		"all of them old":       {[]string{"v1.12.4"}, "v1.13.900"},
		"one of them new":       {[]string{"v1.14.1", "v1.13.4"}, "v1.14.900"},
		"all of them new":       {[]string{"v1.14.1"}, "v1.14.900"},
		"too far from each":     {[]string{"v1.12.4", "v1.14.1"}, ""},
		"what is not a version": {[]string{"new"}, ""},
	} {
		t.Run(name, func(t *testing.T) { NewWithT(t).Expect(lastVersion(row.running)).To(Equal(row.want)) })
	}
}
