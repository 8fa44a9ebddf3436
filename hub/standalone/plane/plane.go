// SPDX-License-Identifier: Apache-2.0

// Package plane is the Kubernetes API server that comes with the hub: etcd and the generic control plane of
// Kubernetes (no pods, no nodes) in one process.
//
// It links most of Kubernetes, and klog, feature gates and schemes in there are global. So it is a leaf that only
// cmd/ichor-hub imports, and that runs in a process of its own.
package plane

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// Config says where the plane keeps its data and how it is reached. Every path must be absolute.
type Config struct {
	// DataDir is the directory of etcd's data. Nobody else may use it while Run runs.
	DataDir string
	// Listener is where the API is served. Run closes it.
	Listener net.Listener
	// ServingCertFile and ServingKeyFile are the certificate of the API; they are read again when they change.
	ServingCertFile, ServingKeyFile string
	// ClientCAFile holds the CAs whose client certificates are accepted.
	ClientCAFile string
	// ServiceAccountKeyFile is the private key that signs service account tokens.
	ServiceAccountKeyFile string
	// AuditPolicyFile says what of the requests is written to AuditLogFile; nothing is without them.
	AuditPolicyFile, AuditLogFile string
}

// etcdStartTimeout bounds the start of etcd; replaying a large log takes seconds, not minutes.
const etcdStartTimeout = time.Minute

// Run serves until ctx is done or the plane cannot go on. It changes the working directory of the process.
func Run(ctx context.Context, cfg Config) error {
	// The plane's own clients use what it deprecates; nobody reads these warnings.
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	defer klog.Flush()

	// A relative path keeps etcd's socket below the 107 characters that a socket's name may have,
	// however long the data directory's name is.
	if err := os.Chdir(cfg.DataDir); err != nil {
		return fmt.Errorf("entering data directory: %w", err)
	}
	etcd, err := startEtcd(ctx, etcdStartTimeout)
	if err != nil {
		return err
	}
	defer etcd.Close()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		if err := <-etcd.Err(); err != nil {
			failed <- fmt.Errorf("running etcd: %w", err)
			cancel()
		}
	}()
	if err := serve(ctx, cfg); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}
