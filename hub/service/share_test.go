// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"testing"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// What is not this hub's would be accepted, and nothing would happen.
func TestOnlyTheClustersOfThisHubAreWorkedOn(t *testing.T) {
	for name, row := range map[string]struct {
		share Share
		label string
		want  string // What the refusal says; empty is none.
	}{
		"all are this hub's":   {Share{}, "green", ""},
		"ours":                 {Share{WatchFilter: "blue"}, "blue", ""},
		"another's":            {Share{WatchFilter: "blue"}, "green", "this hub works only on clusters with label cluster.x-k8s.io/watch-filter=blue (--watch-filter), and cluster default/c1 is none of them"},
		"nobody's":             {Share{WatchFilter: "blue"}, "", "--watch-filter"},
		"in our namespace":     {Share{Namespace: "default"}, "", ""},
		"in another namespace": {Share{Namespace: "team"}, "", `this hub works in namespace "team" alone (--namespace), and cluster default/c1 is not in it`},
	} {
		t.Run(name, func(t *testing.T) {
			objects := cluster()
			if row.label != "" {
				objects[0].SetLabels(map[string]string{"cluster.x-k8s.io/watch-filter": row.label})
			}
			w := newWorld(t, objects...)
			w.Share = row.share
			_, err := w.Plan(w.ctx, upgradeTo("v1.14.1"))
			if row.want == "" {
				w.g.Expect(err).NotTo(HaveOccurred())
				return
			}
			var state *StateError
			w.g.Expect(errors.As(err, &state)).To(BeTrue())
			w.g.Expect(err).To(MatchError(ContainSubstring(row.want)))
		})
	}
}

// A cluster that somebody imports through a hub becomes that hub's, and not one that no hub works on.
func TestAnImportClaimsForThisHub(t *testing.T) {
	for name, row := range map[string]struct {
		share  Share
		labels map[string]string
		there  string // The label of the Cluster that is there.
		want   string
		code   connect.Code
	}{
		"without a filter":            {Share{}, nil, "", "", 0},
		"with one":                    {Share{WatchFilter: "blue"}, nil, "", "blue", 0},
		"that says so itself":         {Share{WatchFilter: "blue"}, map[string]string{clusterv1.WatchLabel: "blue"}, "", "blue", 0},
		"that says another":           {Share{WatchFilter: "blue"}, map[string]string{clusterv1.WatchLabel: "green"}, "", "", connect.CodeInvalidArgument},
		"of another's":                {Share{WatchFilter: "blue"}, nil, "green", "", connect.CodeFailedPrecondition},
		"of one that is ours already": {Share{WatchFilter: "blue"}, nil, "blue", "blue", 0},
		"into another namespace":      {Share{Namespace: "team"}, nil, "", "", connect.CodeFailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []client.Object
			if row.there != "" {
				there := &clusterv1.Cluster{ObjectMeta: named("c1", "c1")}
				there.Spec.InfrastructureRef = infrastructure("c1")
				there.Labels[clusterv1.WatchLabel] = row.there
				objects = append(objects, there)
			}
			w, in := newWorld(t, objects...), brought(t)
			w.server.Share = row.share
			_, err := w.server.ImportCluster(w.ctx, connect.NewRequest(&pb.ImportClusterRequest{
				Ref: &pb.Reference{Namespace: "default", Name: "c1"}, Kubeconfig: in.Kubeconfig, Talosconfig: in.Talosconfig, Labels: row.labels,
			}))
			if row.code != 0 {
				w.g.Expect(connect.CodeOf(err)).To(Equal(row.code), "%s", err)
				w.g.Expect(err).To(MatchError(ContainSubstring(map[bool]string{true: "--watch-filter", false: "--namespace"}[row.share.WatchFilter != ""])))
				w.g.Expect(w.writes).To(BeEmpty())
				return
			}
			w.g.Expect(err).NotTo(HaveOccurred())
			talos, cluster := &v1alpha1.TalosCluster{}, &clusterv1.Cluster{}
			w.get(talos, "c1")
			w.get(cluster, "c1")
			w.g.Expect(talos.Labels[clusterv1.WatchLabel]).To(Equal(row.want))
			w.g.Expect(cluster.Labels[clusterv1.WatchLabel]).To(Equal(row.want))
		})
	}
}
