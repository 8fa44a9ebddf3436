// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"context"
	"fmt"

	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ichor.maesh.dev/hub/test/sim/timing"
)

// clusterService is ClusterService of the node that a call is for.
type clusterService struct {
	clusterapi.UnimplementedClusterServiceServer
}

// healthCheck is one of the conditions that a healthy cluster meets.
type healthCheck struct {
	name    string
	trouble func(*Cluster) string // Nothing when all is well.
}

// healthChecks are those of Talos's own that say something about a simulated cluster, in Talos's order.
var healthChecks = []healthCheck{
	{name: "etcd to be healthy", trouble: func(c *Cluster) string {
		if !c.nodes[0].Etcd().Healthy() {
			return "etcd has no leader"
		}
		return c.lacking(func(n *node) bool { return n.ControlPlane && !n.State().EtcdUp })
	}},
	{name: "apid to be ready", trouble: func(c *Cluster) string {
		return c.lacking(func(n *node) bool { return !n.State().APIUp })
	}},
	{name: "kubelet to be healthy", trouble: func(c *Cluster) string {
		return c.lacking(func(n *node) bool { return !n.State().KubeletReady || n.State().KubeletRestarting })
	}},
	{name: "all nodes to finish boot sequence", trouble: func(c *Cluster) string {
		return c.lacking(func(n *node) bool { return n.State().Stage != runtime.MachineStageRunning })
	}},
}

// HealthCheck waits until the cluster is healthy, and tells what it waits for.
func (clusterService) HealthCheck(req *clusterapi.HealthCheckRequest, stream grpc.ServerStreamingServer[clusterapi.HealthCheckProgress]) error {
	n := nodeFrom(stream.Context())
	if !n.ControlPlane {
		return status.Error(codes.Unimplemented, "cluster health check is only available on control plane nodes")
	}
	ctx, cancel := context.WithTimeout(stream.Context(), req.GetWaitTimeout().AsDuration())
	defer cancel()
	if err := say(stream, fmt.Sprintf("discovered nodes: %q", n.cluster.addresses())); err != nil {
		return err
	}
	for _, check := range healthChecks {
		if err := n.cluster.await(ctx, check, stream); err != nil {
			return err
		}
	}
	return nil
}

func say(stream grpc.ServerStreamingServer[clusterapi.HealthCheckProgress], message string) error {
	return stream.Send(&clusterapi.HealthCheckProgress{Message: message})
}

func (c *Cluster) await(ctx context.Context, check healthCheck, stream grpc.ServerStreamingServer[clusterapi.HealthCheckProgress]) error {
	said := ""
	for {
		trouble := check.trouble(c)
		message := fmt.Sprintf("waiting for %s: %s", check.name, trouble)
		if trouble == "" {
			message = fmt.Sprintf("waiting for %s: OK", check.name)
		}
		if message != said {
			if err := say(stream, message); err != nil {
				return err
			}
			said = message
		}
		if trouble == "" {
			return nil
		}
		if err := timing.Sleep(ctx, c.Clock, c.Timings.Settle); err != nil {
			return status.FromContextError(err).Err()
		}
	}
}

// lacking names the nodes that something holds for.
func (c *Cluster) lacking(bad func(*node) bool) string {
	var names []string
	for _, n := range c.nodes {
		if bad(n) {
			names = append(names, n.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("not on nodes %q", names)
}

func (c *Cluster) addresses() []string {
	list := make([]string, 0, len(c.nodes))
	for _, n := range c.nodes {
		list = append(list, n.Address)
	}
	return list
}
