// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// statusWrites counts writes of the status of operations: what each step costs the management API.
var statusWrites = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "ichor_operation_status_writes_total",
	Help: "Writes of the status of TalosOperations, by kind.",
}, []string{"kind"})

func init() { metrics.Registry.MustRegister(statusWrites) }
