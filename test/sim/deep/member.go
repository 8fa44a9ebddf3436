// SPDX-License-Identifier: Apache-2.0

package deep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"sigs.k8s.io/yaml"

	"ichor.maesh.dev/hub/test/sim/etcd"
	"ichor.maesh.dev/hub/test/sim/secrets"
)

// member is a run of a machine's etcd.
type member struct {
	process *process
	removed bool // It does not belong to the cluster any more, and so is not started again.
}

// membership is how a member begins when its data directory is empty.
type membership struct {
	state string // As etcd calls it: new or existing.
	peers string // All members with their URLs.
}

// security is how etcd's configuration names the files of one of its ports.
type security struct {
	CertFile       string `json:"cert-file"`
	KeyFile        string `json:"key-file"`
	TrustedCAFile  string `json:"trusted-ca-file"`
	ClientCertAuth bool   `json:"client-cert-auth"`
	// The addresses in a client's certificate are not compared with the one that it calls from: that is 127.0.0.1 for all.
	SkipClientSANVerify bool `json:"skip-client-san-verification"`
}

// etcdConfig is etcd's configuration as Talos sets it. That nothing is synced to disk, and the slower heart, are the simulation's own: many
// members share a disk and few processors, and all survive a kill.
type etcdConfig struct {
	Name                string   `json:"name"`
	DataDir             string   `json:"data-dir"`
	ListenClientURLs    string   `json:"listen-client-urls"`
	ListenPeerURLs      string   `json:"listen-peer-urls"`
	AdvertiseClientURLs string   `json:"advertise-client-urls"`
	AdvertisePeerURLs   string   `json:"initial-advertise-peer-urls"`
	InitialCluster      string   `json:"initial-cluster,omitempty"`
	InitialState        string   `json:"initial-cluster-state"`
	Client              security `json:"client-transport-security"`
	Peer                security `json:"peer-transport-security"`
	FeatureGates        string   `json:"feature-gates"`
	Progress            int64    `json:"watch-progress-notify-interval"`
	UnsafeNoFsync       bool     `json:"unsafe-no-fsync"`
	Heartbeat           int      `json:"heartbeat-interval"`
	Election            int      `json:"election-timeout"`
	LogLevel            string   `json:"log-level"`
	LogOutputs          []string `json:"log-outputs"`
}

// configuration writes the configuration of a member and returns its path.
func (n *node) configuration(begin membership) (string, error) {
	secured := func(cert, key string) security {
		return security{
			CertFile: n.file(cert), KeyFile: n.file(key), TrustedCAFile: n.file(constants.EtcdCACert), ClientCertAuth: true, SkipClientSANVerify: true,
		}
	}
	data, err := yaml.Marshal(etcdConfig{
		Name: n.name, DataDir: n.dataDir(),
		ListenClientURLs: n.clientURL(), AdvertiseClientURLs: n.clientURL(),
		ListenPeerURLs: n.peerURL(), AdvertisePeerURLs: n.peerURL(),
		InitialCluster: begin.peers, InitialState: begin.state,
		Client:       secured(constants.EtcdCert, constants.EtcdKey),
		Peer:         secured(constants.EtcdPeerCert, constants.EtcdPeerKey),
		FeatureGates: "InitialCorruptCheck=true,CompactHashCheck=true", Progress: int64(5 * time.Second),
		UnsafeNoFsync: true, Heartbeat: 200, Election: 2000, LogLevel: "info", LogOutputs: []string{"stderr"},
	})
	if err != nil {
		return "", fmt.Errorf("encode the configuration of etcd: %w", err)
	}
	path := filepath.Join(n.dir, "etcd.yaml")
	return path, os.WriteFile(path, data, 0o600)
}

// startEtcd starts a member, unless its machine went down meanwhile.
func (c *Cluster) startEtcd(ctx context.Context, n *node, begin membership) (*member, error) {
	n.lifecycle.Lock()
	defer n.lifecycle.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if _, err := c.write(n); err != nil {
		return nil, err
	}
	path, err := n.configuration(begin)
	if err != nil {
		return nil, err
	}
	m, err := c.spawnEtcd(n, path)
	if err != nil {
		return nil, err
	}
	c.change(func() { n.etcd = m })
	c.group.Go(func() { c.keepEtcd(n, m, path) })
	return m, nil
}

func (c *Cluster) spawnEtcd(n *node, configuration string) (*member, error) {
	run, err := program{
		binary: c.Binary, arguments: []string{"etcd", "--config-file", configuration}, env: []string{"GOGC=50", "GOMAXPROCS=2"}, log: n.log("etcd"),
	}.start()
	if err != nil {
		return nil, err
	}
	return &member{process: run}, nil
}

// keepEtcd starts a member again when it has ended by itself, as Talos does, until it is stopped or removed.
func (c *Cluster) keepEtcd(n *node, m *member, configuration string) {
	for {
		c.mu.Lock()
		run := m.process
		c.mu.Unlock()
		select {
		case <-run.ended:
		case <-c.life.Done():
			return
		}
		if await(c.life, nil, c.BackOff) != nil || !c.respawnEtcd(n, m, configuration) {
			return
		}
	}
}

// respawnEtcd starts a member again, if it is still wanted.
func (c *Cluster) respawnEtcd(n *node, m *member, configuration string) bool {
	n.lifecycle.Lock()
	defer n.lifecycle.Unlock()
	c.mu.Lock()
	wanted := n.etcd == m && !m.removed
	c.mu.Unlock()
	if !wanted || c.life.Err() != nil {
		return false
	}
	again, err := c.spawnEtcd(n, configuration)
	if err != nil {
		c.Logger.Error(err, "etcd was not started again", "cluster", c.Name, "node", n.name)
		return false
	}
	c.change(func() { m.process = again.process })
	return true
}

// stopEtcd ends a member in the given way.
func (c *Cluster) stopEtcd(n *node, end func(*process) error) error {
	n.lifecycle.Lock()
	defer n.lifecycle.Unlock()
	c.mu.Lock()
	m, client := n.etcd, n.client
	n.etcd, n.client, n.clientOf = nil, nil, nil
	c.mu.Unlock()
	c.change(func() {})
	if client != nil {
		_ = client.Close()
	}
	if m == nil {
		return nil
	}
	return end(m.process)
}

// serves waits until a member answers. It fails when the member has ended.
func (c *Cluster) serves(ctx context.Context, n *node, m *member) error {
	for {
		c.mu.Lock()
		run := m.process
		c.mu.Unlock()
		if run.gone() {
			return fmt.Errorf("etcd of %s has ended, see %s: %w", n.name, n.log("etcd"), run.err)
		}
		if _, err := c.status(ctx, n); err == nil {
			return nil
		}
		if err := await(ctx, run.ended, pollEvery); err != nil {
			return err
		}
	}
}

// pollEvery is the pause between two questions where no event tells.
const pollEvery = 100 * time.Millisecond

// answerWithin is how long a member may take to answer.
const answerWithin = 5 * time.Second

// errNoClient is what a member that runs is not asked for want of a client.
var errNoClient = errors.New("no client of etcd")

// ask returns a client of a machine's member, if that runs.
func (c *Cluster) ask(name string) (*node, *clientv3.Client, error) {
	n, err := c.node(name)
	if err != nil {
		return nil, nil, err
	}
	files, err := c.Files(name)
	if err != nil {
		return nil, nil, errors.Join(errNoClient, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.etcd == nil || n.etcd.process.gone() {
		return nil, nil, etcd.ErrNotRunning
	}
	if n.client != nil && n.clientOf == files {
		return n, n.client, nil
	}
	client, err := newClient(n, files)
	if err != nil {
		return nil, nil, errors.Join(errNoClient, err)
	}
	if n.client != nil {
		_ = n.client.Close()
	}
	n.client, n.clientOf = client, files
	return n, client, nil
}

// impatient connects again at once: a member that was away is to be found as soon as it is back.
var impatient = grpc.WithConnectParams(grpc.ConnectParams{
	Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.2, MaxDelay: 300 * time.Millisecond}, MinConnectTimeout: answerWithin,
})

func newClient(n *node, files *secrets.Files) (*clientv3.Client, error) {
	config, err := talos.in(files)
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{
		Endpoints: []string{n.clientURL()}, TLS: config, DialTimeout: answerWithin, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{impatient},
	})
}
