// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

const (
	// etcdDir and etcdSocket are relative to the data directory, which Run makes the working directory.
	etcdDir    = "etcd"
	etcdSocket = "etcd.sock"
	// etcdQuota is the size at which etcd turns read-only: the largest that its authors recommend.
	etcdQuota = 8 << 30
)

// etcdEndpoint is the address of etcd for clients in this process.
const etcdEndpoint = "unix://" + etcdSocket

// startEtcd starts a single-member etcd that listens on a socket in the working directory and nowhere else:
// whoever may not enter the data directory cannot reach it.
func startEtcd(ctx context.Context, timeout time.Duration) (*embed.Etcd, error) {
	etcd, err := embed.StartEtcd(etcdConfig())
	if err != nil {
		return nil, fmt.Errorf("starting etcd: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case err := <-etcd.Err():
		etcd.Close()
		return nil, fmt.Errorf("starting etcd: %w", err)
	case <-ctx.Done():
		etcd.Close()
		return nil, fmt.Errorf("waiting for etcd to be ready: %w", ctx.Err())
	}
}

func etcdConfig() *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = "standalone"
	cfg.Dir = etcdDir
	cfg.ListenClientUrls = []url.URL{{Scheme: "unix", Host: etcdSocket}}
	// Never dialed, but etcd insists on a host and port.
	cfg.AdvertiseClientUrls = []url.URL{{Scheme: "http", Host: "localhost:2379"}}
	cfg.ListenPeerUrls = nil // One member has no peers, and no port.
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.QuotaBackendBytes = etcdQuota
	// Unset it means zero, and every request is logged as slow.
	cfg.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	cfg.LogLevel = "warn"
	cfg.LogOutputs = []string{embed.StdErrLogOutput}
	return cfg
}
