// SPDX-License-Identifier: Apache-2.0

package deep

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"ichor.maesh.dev/hub/test/sim/secrets"
)

// Ports of the processes. The one of the API server is hidden behind the machine's port 6443, which the simulator opens and closes.
const (
	clientPort = "2379"
	peerPort   = "2380"
	serverPort = "7443"
)

// node is a control plane: its disk, and what runs on it.
type node struct {
	name, address string
	dir           string

	// lifecycle is held while the etcd member is started or stopped, and pods while the API server is.
	lifecycle, pods sync.Mutex

	// disk is held while files are written, and guards what was.
	disk    sync.Mutex
	written *secrets.Files

	// Guarded by the cluster's lock.
	etcd      *member
	server    *server
	preparing bool       // Its member waits for data.
	bootstrap *Bootstrap // What it was asked for while preparing.
	client    *clientv3.Client
	clientOf  *secrets.Files // What the client was made from.
}

func newNode(dir, name, address string) (*node, error) {
	n := &node{name: name, address: address, dir: filepath.Join(dir, name)}
	for _, path := range []string{n.dir, n.root(), n.dataDir()} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, fmt.Errorf("node %s: %w", name, err)
		}
	}
	return n, nil
}

// root is where the machine's files are.
func (n *node) root() string { return filepath.Join(n.dir, "root") }

// dataDir is etcd's.
func (n *node) dataDir() string { return filepath.Join(n.dir, "etcd") }

// upload is the snapshot that was uploaded for a recovery.
func (n *node) upload() string { return filepath.Join(n.dir, "etcd.snapshot") }

// log is the file with what a process says.
func (n *node) log(process string) string { return filepath.Join(n.dir, process+".log") }

// file is where one of the machine's files is.
func (n *node) file(path string) string { return filepath.Join(n.root(), path) }

func (n *node) clientURL() string { return "https://" + net.JoinHostPort(n.address, clientPort) }

func (n *node) peerURL() string { return "https://" + net.JoinHostPort(n.address, peerPort) }

// hasData says whether etcd's data directory holds anything, which is what Talos looks at.
func (n *node) hasData() bool {
	entries, err := os.ReadDir(n.dataDir())
	return err != nil || len(entries) > 0
}

// clear empties etcd's data directory.
func (n *node) clear() error {
	entries, err := os.ReadDir(n.dataDir())
	if err != nil {
		return fmt.Errorf("read the data directory of etcd: %w", err)
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(n.dataDir(), entry.Name())); err != nil {
			return fmt.Errorf("clear the data directory of etcd: %w", err)
		}
	}
	return nil
}
