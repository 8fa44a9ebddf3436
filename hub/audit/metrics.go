// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Why an entry is in the log alone.
const (
	lostToError = "error"
	lostToLimit = "limit"
)

var (
	// entries counts what was done or tried.
	entries = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ichor_audit_entries_total",
		Help: "Calls with side effects, by what came of them.",
	}, []string{"result"})

	// lost counts what is in the log and nowhere else.
	lost = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ichor_audit_entries_lost_total",
		Help: "Audit entries that only the log has: for an error of the management API, or for the limit of what changed nothing.",
	}, []string{"reason"})

	// pruned counts what was removed for its age, or as one of too many.
	pruned = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "ichor_audit_entries_pruned_total",
		Help: "Audit entries that were removed, since they were too old or too many.",
	})
)

func init() { metrics.Registry.MustRegister(entries, lost, pruned) }
