// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// runEtcd runs a member until it is told to stop, or until it was removed from its cluster.
func runEtcd(arguments []string) error {
	flags := flag.NewFlagSet("etcd", flag.ContinueOnError)
	file := flags.String("config-file", "", "etcd's own configuration file")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	config, err := embed.ConfigFromFile(*file)
	if err != nil {
		return fmt.Errorf("read the configuration of etcd: %w", err)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	defer etcd.Close()
	select {
	case <-stop:
		return nil
	case err := <-etcd.Err():
		return fmt.Errorf("etcd: %w", err)
	case <-etcd.Server.StopNotify():
		return errors.New("etcd has stopped: its member does not belong to the cluster any more")
	}
}

// recoverEtcd makes the data directory of a new cluster of one member from a snapshot, as Talos does.
func recoverEtcd(arguments []string) error {
	config := snapshot.RestoreConfig{}
	flags := flag.NewFlagSet("recover", flag.ContinueOnError)
	flags.StringVar(&config.SnapshotPath, "snapshot", "", "the snapshot")
	flags.StringVar(&config.OutputDataDir, "data-dir", "", "the data directory to make")
	flags.StringVar(&config.Name, "name", "", "the name of the member")
	flags.BoolVar(&config.SkipHashCheck, "skip-hash-check", false, "accept a copied database, which has no hash")
	peer := flags.String("peer-url", "", "the member's URL for its peers")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	config.PeerURLs = []string{*peer}
	config.InitialCluster = config.Name + "=" + *peer
	config.InitialClusterToken = embed.NewConfig().InitialClusterToken
	manager := snapshot.NewV3(zap.NewNop())
	if _, err := manager.Status(config.SnapshotPath); err != nil {
		return fmt.Errorf("error verifying snapshot: %w", err)
	}
	if err := manager.Restore(config); err != nil {
		return fmt.Errorf("error recovering from the snapshot: %w", err)
	}
	return nil
}
