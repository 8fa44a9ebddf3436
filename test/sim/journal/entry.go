// SPDX-License-Identifier: Apache-2.0

// Package journal records what the simulated machines were asked to do and what became of it.
package journal

import (
	"strings"
	"time"
)

// Entry is one call that a node or a cluster received, or one change of a node's state.
type Entry struct {
	// Sequence grows by one with each entry, over all clusters.
	Sequence uint64 `json:"sequence"`
	// Time is when the call arrived.
	Time time.Time `json:"time"`
	// Cluster is the cluster's name.
	Cluster string `json:"cluster"`
	// Node is the node that carried the call out; empty for calls of a cluster's Kubernetes API.
	Node string `json:"node,omitempty"`
	// Method is "LifecycleService/Upgrade", "kube PATCH nodes/x", "event boot" and so on.
	Method string `json:"method"`
	// Arguments are the telling ones: image, mode, type, unschedulable.
	Arguments map[string]string `json:"arguments,omitempty"`
	// Caller is the common name of the client certificate.
	Caller string `json:"caller,omitempty"`
	// Roles are the roles (Talos) or groups (Kubernetes) of the client certificate.
	Roles []string `json:"roles,omitempty"`
	// Done is false from the arrival of the call until its end.
	Done bool `json:"done"`
	// Code is the outcome: a gRPC code such as "OK", or an HTTP status such as "201".
	Code string `json:"code,omitempty"`
	// Message goes with a code that is an error, or with an event.
	Message string `json:"message,omitempty"`
	// ExitCode is the installer's, where there was one.
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Duration is the time from arrival to end.
	Duration time.Duration `json:"duration,omitempty"`
}

// Filter selects entries; its zero value selects all.
type Filter struct {
	// Cluster and Node select by name.
	Cluster, Node string
	// Method is exact, or a prefix when it ends in "*".
	Method string
	// After selects entries with a greater sequence.
	After uint64
	// Done leaves out calls that have not ended.
	Done bool
}

// Matches says whether the filter selects the entry.
func (f Filter) Matches(e Entry) bool {
	switch {
	case f.Cluster != "" && f.Cluster != e.Cluster:
		return false
	case f.Node != "" && f.Node != e.Node:
		return false
	case e.Sequence <= f.After:
		return false
	case f.Done && !e.Done:
		return false
	}
	return f.matchesMethod(e.Method)
}

func (f Filter) matchesMethod(method string) bool {
	if prefix, ok := strings.CutSuffix(f.Method, "*"); ok {
		return strings.HasPrefix(method, prefix)
	}
	return f.Method == "" || f.Method == method
}
