// SPDX-License-Identifier: Apache-2.0

package reboot

import (
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/controllers/operation/kind"
)

// The lock may go to another operation before the reboot is asked for, after the machine is back, and where an answer was final; not
// while nobody knows whether the machine, and its etcd member, come back.
func TestUnsafe(t *testing.T) {
	asked, gone := "is asked to reboot and has not done so yet", "has rebooted and is not known to be back"
	for name, row := range map[string]struct {
		unit kind.Unit
		want string
	}{
		"not begun":                       {at(""), ""},
		"forfeiting":                      {at("Forfeiting"), ""},
		"draining":                        {at("Draining"), ""},
		"drained":                         {at("Draining", succeeded), ""},
		"the drain failed":                {at("Draining", gaveUp), ""},
		"the drain timed out":             {at("Draining", failed("Timeout")), ""},
		"reboot claimed":                  {at("Rebooting"), asked},
		"reboot asked":                    {at("Rebooting", succeeded), asked},
		"reboot refused (403)":            {at("Rebooting", gaveUp), ""},
		"the request may have been heard": {at("Rebooting", failed("Interrupted")), asked},
		"the request failed":              {at("Rebooting", failed("Retryable")), asked},
		"no other boot ID in time (D9)":   {at("Rebooting", failed("Timeout")), asked},
		"coming back":                     {at("Verifying"), gone},
		"proved to be another (B10)":      {at("Verifying", gaveUp), ""},
		"not back in time (B14)":          {at("Verifying", failed("Timeout")), gone},
		"uncordoning":                     {at("Uncordoning"), ""},
		"uncordoning failed":              {at("Uncordoning", gaveUp), ""},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(Unsafe(row.unit)).To(Equal(row.want))
		})
	}
}
