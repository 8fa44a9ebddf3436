// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// secretNames are the Secrets that the hub names, in the tests, and what it may do with them: RBAC knows no more of that than "Secrets".
// docs/security.md says the same in words.
var secretNames = []struct {
	name  *regexp.Regexp
	verbs []string
}{
	{regexp.MustCompile(`-kubeconfig$`), []string{"get", "update"}},                     // Credentials, which a rotation hands over.
	{regexp.MustCompile(`-talosconfig$`), []string{"get", "update"}},                    // Likewise.
	{regexp.MustCompile(`-ca$`), []string{"get", "update"}},                             // The authority that Cluster API keeps.
	{regexp.MustCompile(`-talos$`), []string{"get", "create", "update"}},                // The bundle of secrets of a cluster.
	{regexp.MustCompile(`-machine-config$`), []string{"get", "create"}},                 // The base of a machine.
	{regexp.MustCompile(`^ca-rotation-`), []string{"get", "create", "delete"}},          // What a rotation of authorities keeps.
	{regexp.MustCompile(`-keys$`), []string{"get", "create", "update"}},                 // What a rotation of keys keeps.
	{regexp.MustCompile(`-old-key-[0-9a-f]{16}$`), []string{"get", "create", "update"}}, // A key that snapshots need.
	{regexp.MustCompile(`^(s3|age|missing)$`), []string{"get"}},                         // What a TalosCluster names for its backups.
	{regexp.MustCompile(`^ichor-hub-session$`), []string{"get", "create"}},              // The key of sessions.
}

// secretTrouble is how the hub went beyond the Secrets that are its business; empty if it did not.
func secretTrouble(e *auditv1.Event) string {
	if !over(e) || !inItsName(e) || e.ObjectRef == nil || e.ObjectRef.APIGroup != "" || e.ObjectRef.Resource != "secrets" {
		return ""
	}
	switch e.Verb {
	case "list", "watch":
		if !ofClusters(e.RequestURI) {
			return fmt.Sprintf("%s of Secrets without a selector for label %s: %s", e.Verb, clusterv1.ClusterNameLabel, e.RequestURI)
		}
		return ""
	case "deletecollection":
		return "deletion of more than one Secret: " + e.RequestURI
	}
	for _, known := range secretNames {
		if known.name.MatchString(e.ObjectRef.Name) && slices.Contains(known.verbs, e.Verb) {
			return ""
		}
	}
	return fmt.Sprintf("%s of Secret %s, which is not one of those that the hub names", e.Verb, e.ObjectRef.Name)
}

// ofClusters says whether a request selects by the label that Secrets of clusters have, or by one value of it.
func ofClusters(uri string) bool {
	parsed, err := url.ParseRequestURI(uri)
	if err != nil {
		return false
	}
	selector, err := labels.Parse(parsed.Query().Get("labelSelector"))
	if err != nil {
		return false
	}
	requirements, _ := selector.Requirements()
	return slices.ContainsFunc(requirements, func(r labels.Requirement) bool {
		has := []selection.Operator{selection.Exists, selection.Equals, selection.DoubleEquals, selection.In}
		return r.Key() == clusterv1.ClusterNameLabel && slices.Contains(has, r.Operator())
	})
}
