// SPDX-License-Identifier: Apache-2.0

// Command kube-apiserver is the upstream Kubernetes API server for the deep simulation, made of the modules that the hub's own API
// server is made of. The same binary is etcd, under the command of that name, and restores its snapshots: one link instead of three.
package main

import (
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // Its formats of logs.
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // Its metrics.
	_ "k8s.io/component-base/metrics/prometheus/version"  // Likewise.
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	if len(os.Args) > 1 {
		if command, ok := commands[os.Args[1]]; ok {
			if err := command(os.Args[2:]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	os.Exit(cli.Run(app.NewAPIServerCommand()))
}

// commands are what the binary does besides being an API server, whose own command line has flags only.
var commands = map[string]func(arguments []string) error{
	"etcd":    runEtcd,
	"recover": recoverEtcd,
}
