// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/hub/service"
)

// cli carries what every command needs.
type cli struct {
	in       io.Reader
	out, err io.Writer

	kubeconfig, context string // Flags.
	namespace           string // Flag; empty means that of the context.
	cluster             string // Flag.
	output              string // Flag.

	service *service.Service // Set by connect.
	watcher client.WithWatch // Set by connect.
}

func newCommand(in io.Reader, out, errOut io.Writer) *cobra.Command {
	c := &cli{in: in, out: out, err: errOut}
	root := &cobra.Command{
		Use:   "ichor",
		Short: "Run operations on many Talos Linux clusters from one place",
		Long: `Run operations on many Talos Linux clusters from one place.

ichor works with the management API of a hub: the cluster that --kubeconfig or $KUBECONFIG names.`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		DisableAutoGenTag: true,
	}
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError("%w; see: %s --help", err, cmd.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig of the management API (default: $KUBECONFIG, then ~/.kube/config)")
	flags.StringVar(&c.context, "context", "", "context of the kubeconfig")
	flags.StringVarP(&c.namespace, "namespace", "n", "", "namespace (default: that of the context)")
	flags.StringVar(&c.cluster, "cluster", "", "cluster to work with")
	flags.StringVarP(&c.output, "output", "o", outputTable, "format: "+strings.Join(outputs, ", "))
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return checkOutput(c.output) }
	root.AddCommand(
		newClusterCommand(c), newMachineCommand(c), newUpgradeCommand(c), newNodeCommand(c), newOperationCommand(c), newVersionCommand(c),
	)
	return root
}

func newVersionCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run:   func(*cobra.Command, []string) { fmt.Fprintln(c.out, version) },
	}
}

// connect prepares the client of the management API, and finds the namespace.
func (c *cli) connect() error {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.context})
	config, err := loader.ClientConfig()
	if err != nil {
		return fmt.Errorf("finding the management API: %w; set $KUBECONFIG or --kubeconfig", err)
	}
	if c.namespace == "" {
		if c.namespace, _, err = loader.Namespace(); err != nil {
			return fmt.Errorf("finding the namespace: %w", err)
		}
	}
	config.UserAgent = "ichor"
	config.QPS, config.Burst = 50, 100
	made, err := client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		return fmt.Errorf("connecting to the management API at %s: %w", config.Host, err)
	}
	c.service, c.watcher = &service.Service{Client: made, Now: time.Now}, made
	return nil
}

// clusterKey is the cluster that --cluster names.
func (c *cli) clusterKey() (client.ObjectKey, error) {
	if c.cluster == "" {
		return client.ObjectKey{}, usageError("--cluster is needed; list clusters with: ichor cluster list")
	}
	return client.ObjectKey{Namespace: c.namespace, Name: c.cluster}, nil
}

// confirm asks before something disruptive. Without a terminal nobody can answer, and only --yes goes on.
func (c *cli) confirm(question string, yes bool) error {
	if yes {
		return nil
	}
	if file, ok := c.in.(*os.File); !ok || !term.IsTerminal(int(file.Fd())) {
		return usageError("this needs a confirmation and there is no terminal to ask on: add --yes")
	}
	fmt.Fprintf(c.err, "%s [y/N] ", question)
	answer, err := bufio.NewReader(c.in).ReadString('\n')
	if err != nil || !strings.EqualFold(strings.TrimSpace(answer), "y") {
		return &codedError{errors.New("not confirmed, nothing was changed"), exitError}
	}
	return nil
}
