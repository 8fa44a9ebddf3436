// SPDX-License-Identifier: Apache-2.0

package scale_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"ichor.maesh.dev/hub/test/framework"
	"ichor.maesh.dev/hub/test/sim/control"
	"ichor.maesh.dev/hub/test/sim/fault"
)

// clustersPerSimulator is how many clusters one simulator has: its address plan has room for 254.
const clustersPerSimulator = 250

// fleet is a fleet of equal clusters, simulated by processes of their own.
type fleet struct {
	dir        string
	clusters   []string
	simulators []*framework.Daemon
}

// startFleet starts as many clusters of three control planes and two workers.
func startFleet(ctx context.Context, dir string, clusters int) (*fleet, error) {
	f := &fleet{dir: dir}
	for i := range clusters {
		f.clusters = append(f.clusters, fmt.Sprintf("c%04d", i+1))
	}
	for first := 0; first < clusters; first += clustersPerSimulator {
		args := []string{"serve", "--dir", f.simulatorDir(first)}
		for _, cluster := range f.clusters[first:min(first+clustersPerSimulator, clusters)] {
			args = append(args, "--cluster", cluster+"=3+2")
		}
		simulator, err := framework.StartDaemon(ctx, filepath.Join(dir, "simulators.log"), "ichor-sim", args...)
		if err != nil {
			return f, err
		}
		f.simulators = append(f.simulators, simulator)
	}
	return f, nil
}

// simulatorDir is the directory of the simulator that has the cluster of an index.
func (f *fleet) simulatorDir(cluster int) string {
	return filepath.Join(f.dir, fmt.Sprintf("simulator-%d", cluster/clustersPerSimulator+1))
}

// credentials are a cluster's kubeconfig and talosconfig.
func (f *fleet) credentials(cluster int) (kubeconfig, talosconfig []byte, err error) {
	dir := filepath.Join(f.simulatorDir(cluster), f.clusters[cluster])
	if kubeconfig, err = os.ReadFile(filepath.Join(dir, "kubeconfig")); err != nil {
		return nil, nil, err
	}
	talosconfig, err = os.ReadFile(filepath.Join(dir, "talosconfig"))
	return kubeconfig, talosconfig, err
}

// blackhole makes packets to clusters vanish.
func (f *fleet) blackhole(ctx context.Context, clusters []int) error {
	for _, cluster := range clusters {
		simulator, err := control.Open(f.simulatorDir(cluster))
		if err != nil {
			return err
		}
		_, err = simulator.Inject(ctx, fault.Fault{
			Name: fault.Unreachable, Cluster: f.clusters[cluster], Params: map[string]string{fault.ParamMode: "blackhole"},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// pids are the processes of the fleet.
func (f *fleet) pids() []int {
	var pids []int
	for _, simulator := range f.simulators {
		pids = append(pids, simulator.PID())
	}
	return pids
}

func (f *fleet) stop() {
	for _, simulator := range f.simulators {
		_ = simulator.End(syscall.SIGTERM)
	}
}
