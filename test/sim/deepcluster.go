// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"ichor.maesh.dev/hub/test/sim/component"
	"ichor.maesh.dev/hub/test/sim/deep"
	"ichor.maesh.dev/hub/test/sim/etcd"
	"ichor.maesh.dev/hub/test/sim/journal"
	"ichor.maesh.dev/hub/test/sim/secrets"
	"ichor.maesh.dev/hub/test/sim/workload"
)

// deepCluster is what a deep cluster has beside its machines: processes, and a store behind them.
type deepCluster struct {
	*deep.Cluster
	cluster *Cluster
	store   *deep.Store
}

// startWithin bounds the start of a cluster's processes, on few processors that others use as well.
const startWithin = 5 * time.Minute

func newDeepCluster(c *Cluster) *deepCluster {
	d := &deepCluster{cluster: c}
	d.Cluster = deep.New(deep.Options{
		Name: c.spec.Name, Dir: filepath.Join(c.dir, "disks"), Binary: c.sim.options.KubeAPIServer,
		Files: d.files, Audit: d.audit, Changed: d.changed, BackOff: c.sim.options.Timings.BackOff, Logger: c.sim.options.Logger,
	})
	d.store = d.NewStore(d.sync)
	return d
}

func (d *deepCluster) run() error {
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	if err := d.Run(ctx, d.serverOf); err != nil {
		return fmt.Errorf("start the processes, whose logs are in %s: %w", d.Dir, err)
	}
	return d.store.Follow(ctx)
}

// serverOf is what a machine's config says about its API server.
func (d *deepCluster) serverOf(name string) component.Part {
	part, _ := d.cluster.Node(name).machine.Components().Set.Part(component.APIServer)
	return part
}

// methods are what HTTP calls the verbs of the audit.
var methods = map[string]string{
	"create": http.MethodPost, "update": http.MethodPut, "patch": http.MethodPatch,
	"delete": http.MethodDelete, "deletecollection": http.MethodDelete,
}

// audit writes changes to the journal, in the form of those of the shallow simulation.
func (d *deepCluster) audit(_ string, event *auditv1.Event) {
	path, object := event.ObjectRef.Resource, event.ObjectRef
	for _, part := range []string{object.Name, object.Subresource} {
		if part != "" {
			path += "/" + part
		}
	}
	arguments := map[string]string{}
	if agent, _, _ := strings.Cut(event.UserAgent, "/"); agent != "" {
		arguments["agent"] = agent
	}
	if object.Namespace != "" {
		arguments["namespace"] = object.Namespace
	}
	if strings.Contains(event.RequestURI, "dryRun=All") {
		arguments["dryRun"] = "All"
	}
	call := d.cluster.sim.journal.Begin(journal.Entry{
		Cluster: d.cluster.spec.Name, Method: "kube " + methods[event.Verb] + " " + path, Arguments: arguments,
		Caller: event.User.Username, Roles: event.User.Groups,
	}, false)
	if event.ResponseStatus != nil {
		call.End(strconv.Itoa(int(event.ResponseStatus.Code)), event.ResponseStatus.Message)
	}
}

// changed hears of leaders.
func (d *deepCluster) changed(leader string) {
	d.cluster.recordLeader(leader)
	d.store.Poke()
}

// sync lets the controllers look around.
func (d *deepCluster) sync() { d.cluster.workload.Sync() }

func (d *deepCluster) makeKubernetes() error {
	c := d.cluster
	c.store = d.store
	o := c.workloadOptions()
	o.Healthy, o.Kubelet = d.Serving, func(node string) workload.Store { return d.store.As(node) }
	kubelets := d.store.NewKubelets()
	o.Alive = kubelets.Alive
	c.workload = workload.New(o)
	c.workload.Begin()
	d.store.Tell()
	for _, m := range c.machines() {
		kubelets.Run(m.Name, func() bool { return m.State().KubeletReady })
	}
	c.front = newFront(c, d.Proxy())
	return nil
}

// files are what Talos has written on a machine from the config in force.
func (d *deepCluster) files(name string) (*secrets.Files, error) {
	n := d.cluster.Node(name)
	if n == nil {
		return nil, fmt.Errorf("no machine is named %q", name)
	}
	if files := n.machine.Files(); files != nil {
		return files, nil
	}
	return nil, fmt.Errorf("machine %s has no certificates", name)
}

// follow writes the files that have changed on a machine: real processes read certificates and CAs again, but no keys.
func (d *deepCluster) follow(name string) {
	if err := d.Rewrite(name); err != nil {
		d.cluster.sim.options.Logger.Error(err, "Files were not written", "cluster", d.cluster.spec.Name, "node", name)
	}
}

// refresh carries out what faults change in a cluster at once, and lets the workload look around.
func (c *Cluster) refresh() {
	if c.deep != nil {
		c.deep.store.Poke()
		return
	}
	c.etcd.(*etcd.Cluster).Refresh() //nolint:forcetypeassert // It is one in the shallow simulation.
}

// kubeAPIServerVariable names the binary that deep clusters run.
const kubeAPIServerVariable = "ICHOR_KUBE_APISERVER_BINARY"

// findKubeAPIServer finds the binary that deep clusters run.
func findKubeAPIServer(given string) (string, error) {
	if given == "" {
		given = os.Getenv(kubeAPIServerVariable)
	}
	if given == "" {
		own, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find the simulator's own binary: %w", err)
		}
		given = filepath.Join(filepath.Dir(own), "kube-apiserver")
	}
	if _, err := os.Stat(given); err != nil {
		return "", errors.Join(fmt.Errorf("deep clusters need the API server (make build-kube-apiserver, or set %s)", kubeAPIServerVariable), err)
	}
	return given, nil
}
