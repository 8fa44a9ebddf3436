// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"ichor.maesh.dev/hub/test/sim"
)

// serveOptions are the flags of serve.
type serveOptions struct {
	demo       int
	clusters   []string
	deep       []string
	blank      []string
	talos      string
	kubernetes string
	schematic  string
	speed      float64
	network    uint8
}

func newServeCommand(g *globals) *cobra.Command {
	o := &serveOptions{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a simulation until interrupted",
		Long: `Run a simulation until interrupted. The credentials of each cluster are in
DIR/CLUSTER/kubeconfig and DIR/CLUSTER/talosconfig. A second run with the same
directory finds the clusters as the first one left them.`,
		Example: `  ichor-sim serve --dir /tmp/fleet --clusters 3
  ichor-sim serve --cluster prod=3+5 --cluster edge=1+0 --speed 10
  ichor-sim serve --cluster prod=3+5 --maintenance prod=2+1
  ichor-sim serve --deep-cluster real=3+2`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd, g) },
	}
	flags := cmd.Flags()
	flags.IntVar(&o.demo, "clusters", 0, "number of demo clusters: 3+2, 1+2 and 3+0 machines in turn")
	flags.StringArrayVar(&o.clusters, "cluster", nil, "a cluster as NAME=CONTROLPLANES+WORKERS; may be repeated")
	flags.StringArrayVar(&o.deep, "deep-cluster", nil, "the same, with a real etcd and a real API server on each control plane; may be repeated")
	flags.StringArrayVar(&o.blank, "maintenance", nil, "machines in maintenance mode beside a cluster's own as NAME=CONTROLPLANES+WORKERS; may be repeated")
	flags.StringVar(&o.talos, "talos-version", sim.DefaultTalosVersion, "Talos version of new machines")
	flags.StringVar(&o.kubernetes, "kubernetes-version", "", "Kubernetes version (default "+sim.DefaultKubernetesVersion+", "+
		sim.DeepKubernetesVersion+" for deep clusters)")
	flags.StringVar(&o.schematic, "schematic", sim.VanillaSchematic, "Image Factory schematic of new machines")
	flags.Float64Var(&o.speed, "speed", 1, "how much faster than the demo: a reboot takes 6 seconds at 1")
	flags.Uint8Var(&o.network, "network", 0, "second octet of the addresses 127.NETWORK.CLUSTER.NODE; 0 picks a free one")
	return cmd
}

func (o *serveOptions) run(cmd *cobra.Command, g *globals) error {
	specs, err := o.specs()
	if err != nil {
		return err
	}
	began := time.Now()
	s, err := sim.Start(cmd.Context(), sim.Options{Dir: g.dir, Network: o.network, Speed: o.speed, Clusters: specs})
	if err != nil {
		return err
	}
	defer s.Stop()
	nodes := 0
	for _, c := range s.Clusters() {
		nodes += len(c.Nodes())
	}
	fmt.Fprintf(cmd.OutOrStdout(), "ready: %d clusters, %d nodes in %s\n",
		len(specs), nodes, time.Since(began).Round(time.Millisecond))
	<-cmd.Context().Done()
	return nil
}

func (o *serveOptions) specs() ([]sim.ClusterSpec, error) {
	specs := sim.Demo(o.demo)
	for i, text := range slices.Concat(o.clusters, o.deep) {
		spec, err := sim.ParseClusterSpec(text)
		if err != nil {
			return nil, err
		}
		spec.Deep = i >= len(o.clusters)
		specs = append(specs, spec)
	}
	if len(specs) == 0 {
		return nil, errors.New("no clusters: use --clusters, --cluster or --deep-cluster")
	}
	for _, text := range o.blank {
		if err := sim.AddBlank(specs, text); err != nil {
			return nil, err
		}
	}
	for i := range specs {
		specs[i].TalosVersion, specs[i].KubernetesVersion, specs[i].Schematic = o.talos, o.kubernetes, o.schematic
	}
	return specs, nil
}
