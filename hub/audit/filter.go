// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"slices"
	"strings"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// Filter selects entries.
type Filter struct {
	wanted *pb.AuditFilter
	text   string
}

// NewFilter reads a filter. Its error names the field and what it takes.
func NewFilter(wanted *pb.AuditFilter) (Filter, error) {
	since, until := wanted.GetSince(), wanted.GetUntil()
	switch {
	case since != nil && since.CheckValid() != nil:
		return Filter{}, fmt.Errorf("filter.since: %w", since.CheckValid())
	case until != nil && until.CheckValid() != nil:
		return Filter{}, fmt.Errorf("filter.until: %w", until.CheckValid())
	case since != nil && until != nil && since.AsTime().After(until.AsTime()):
		return Filter{}, fmt.Errorf("filter.since %s: want a time before filter.until %s", since.AsTime(), until.AsTime())
	}
	for _, result := range wanted.GetResults() {
		if _, known := pb.AuditResult_name[int32(result)]; !known || result == pb.AuditResult_AUDIT_RESULT_UNSPECIFIED {
			return Filter{}, fmt.Errorf("filter.results %s: want DONE, DENIED, REFUSED or FAILED", result)
		}
	}
	for _, cluster := range wanted.GetClusters() {
		if cluster.GetNamespace() == "" {
			return Filter{}, fmt.Errorf("filter.clusters %q: want a reference with a namespace", cluster.GetName())
		}
	}
	return Filter{wanted: wanted, text: strings.ToLower(wanted.GetText())}, nil
}

// Namespaces are those that the filter names; none means any.
func (f Filter) Namespaces() []string {
	return slices.Compact(slices.Sorted(slices.Values(f.wanted.GetNamespaces())))
}

// Selects says whether an entry is wanted.
func (f Filter) Selects(entry *Entry) bool {
	message := entry.Message
	return anyOf(f.wanted.GetNamespaces(), entry.Namespace) && f.selectsCluster(entry) &&
		anyOf(f.wanted.GetUsers(), message.GetUser()) && anyOf(f.wanted.GetActions(), message.GetAction()) &&
		anyOf(f.wanted.GetResults(), message.GetResult()) && f.selectsTime(message) && f.selectsText(message)
}

// anyOf says whether a value is one of those that are wanted, or nothing in particular is.
func anyOf[T comparable](wanted []T, value T) bool {
	return len(wanted) == 0 || slices.Contains(wanted, value)
}

func (f Filter) selectsCluster(entry *Entry) bool {
	clusters := f.wanted.GetClusters()
	return len(clusters) == 0 || slices.ContainsFunc(clusters, func(wanted *pb.Reference) bool {
		return wanted.GetNamespace() == entry.Namespace && (wanted.GetName() == "" || wanted.GetName() == entry.Message.GetCluster().GetName())
	})
}

func (f Filter) selectsTime(message *pb.AuditEntry) bool {
	at := message.GetTime().AsTime()
	return (f.wanted.GetSince() == nil || !at.Before(f.wanted.GetSince().AsTime())) &&
		(f.wanted.GetUntil() == nil || at.Before(f.wanted.GetUntil().AsTime()))
}

func (f Filter) selectsText(message *pb.AuditEntry) bool {
	if f.text == "" {
		return true
	}
	return slices.ContainsFunc([]string{
		message.GetUser(), message.GetAction(), message.GetCluster().GetName(), message.GetOperation().GetName(), message.GetMachine().GetName(),
		message.GetDetail(), message.GetMessage(), message.GetSource(), message.GetClient(),
	}, func(text string) bool { return strings.Contains(strings.ToLower(text), f.text) })
}
