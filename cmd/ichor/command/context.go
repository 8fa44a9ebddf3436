// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"ichor.maesh.dev/hub/cmd/ichor/contexts"
	"ichor.maesh.dev/hub/cmd/ichor/dial"
)

func newContextCommand(a *app) *cobra.Command {
	return group("context", "Choose a hub, and what to do there by default", []string{"contexts"},
		newContextListCommand(a), newContextUseCommand(a), newContextSetCommand(a), newContextCurrentCommand(a), newContextDeleteCommand(a))
}

// shownContext is what is shown of a context: no credentials.
type shownContext struct {
	Name      string `json:"name"`
	Current   bool   `json:"current"`
	Hub       string `json:"hub,omitempty"`
	Kube      string `json:"kubeconfig,omitempty"`
	User      string `json:"user,omitempty"`
	Method    string `json:"method,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Cluster   string `json:"cluster,omitempty"`
}

func newContextListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the contexts",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			file, err := a.contexts()
			if err != nil {
				return err
			}
			current := cmp.Or(a.Getenv("ICHOR_CONTEXT"), file.Current)
			shown := make([]shownContext, len(file.Contexts))
			for i, c := range file.Contexts {
				shown[i] = show(c, current)
			}
			return a.printContexts(shown)
		},
	}
}

func show(c *contexts.Context, current string) shownContext {
	s := shownContext{Name: c.Name, Current: c.Name == current, Hub: c.Hub, Kube: c.Kubeconfig, Namespace: c.Namespace, Cluster: c.Cluster}
	if c.Credentials != nil {
		s.User, s.Method = c.Credentials.User, c.Credentials.Method
	}
	return s
}

func (a *app) printContexts(shown []shownContext) error {
	switch a.output {
	case outputName:
		for _, s := range shown {
			fmt.Fprintln(a.Out, s.Name)
		}
		return nil
	case outputJSONL:
		for _, s := range shown {
			data, err := json.Marshal(s)
			if err != nil {
				return fmt.Errorf("writing JSON: %w", err)
			}
			fmt.Fprintf(a.Out, "%s\n", data)
		}
		return nil
	case outputJSON, outputYAML:
		data, err := json.Marshal(map[string]any{"contexts": shown})
		if err != nil {
			return fmt.Errorf("writing JSON: %w", err)
		}
		return a.printJSON(data)
	}
	if len(shown) == 0 {
		a.remark("No contexts. Sign in to a hub with: ichor login URL")
		return nil
	}
	t := table{columns: columns("CURRENT", "NAME", "WHERE", "USER", "NAMESPACE", "CLUSTER", "+METHOD")}
	for _, s := range shown {
		mark := " "
		if s.Current {
			mark = "*"
		}
		t.rows = append(t.rows, []string{mark, s.Name, cmp.Or(s.Hub, s.Kube), s.User, s.Namespace, s.Cluster, s.Method})
	}
	return a.printTable(t)
}

func newContextUseCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "use NAME",
		Short:             "Make a context the current one",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete(a.contextNames),
		RunE: func(_ *cobra.Command, args []string) error {
			err := a.update(func(file *contexts.File) error {
				if _, err := file.Get(args[0]); err != nil {
					return usageError("%w", err)
				}
				file.Current = args[0]
				return nil
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "Context %s is the current one.\n", args[0])
			if other := a.Getenv("ICHOR_CONTEXT"); other != "" && other != args[0] {
				a.remark("Warning: $ICHOR_CONTEXT names %s, which comes first.", other)
			}
			return nil
		},
	}
}

func newContextCurrentCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "current",
		Short: "Print the name of the current context",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			chosen, err := a.choose()
			switch {
			case err != nil:
				return err
			case chosen.context == nil:
				return errors.New("there is no current context: commands work with the kubeconfig; sign in to a hub with: ichor login URL")
			}
			fmt.Fprintln(a.Out, chosen.context.Name)
			return nil
		},
	}
}

func newContextSetCommand(a *app) *cobra.Command {
	var hub string
	cmd := &cobra.Command{
		Use:   "set [NAME]",
		Short: "Remember a cluster or a namespace, or make a context",
		Long: `Remember the --cluster and the --namespace that commands work with where none is given; an empty one forgets it. NAME is a context, the
current one by default.

With --hub or --kubeconfig, a context that does not exist is made. With --kubeconfig, --context names a context of that file.`,
		Example: `  ichor context set --cluster prod-1
  ichor context set demo --kubeconfig .demo/kubeconfig --namespace default`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.complete(a.contextNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if hub != "" && a.kubeconfig != "" {
				return usageError("a context leads to a --hub or to a --kubeconfig, not to both")
			}
			name := append(args, "")[0]
			err := a.update(func(file *contexts.File) error { return a.setContext(cmd, file, &name, hub) })
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "Context %s is written.\n", name)
			return nil
		},
	}
	cmd.Flags().StringVar(&hub, "hub", "", "URL of the hub")
	return cmd
}

// setContext writes what the flags say into a context, and into name which that is.
func (a *app) setContext(cmd *cobra.Command, file *contexts.File, name *string, hub string) error {
	if *name == "" {
		*name = cmp.Or(a.Getenv("ICHOR_CONTEXT"), file.Current)
	}
	if *name == "" {
		return usageError("there is no current context: name one, with --hub or --kubeconfig")
	}
	c := file.Find(*name)
	if c == nil {
		if hub == "" && a.kubeconfig == "" {
			_, err := file.Get(*name)
			return usageError("%w; make one with --hub or --kubeconfig", err)
		}
		c = &contexts.Context{Name: *name}
		file.Put(c)
		file.Current = cmp.Or(file.Current, *name)
	}
	if cmd.Flags().Changed("cluster") {
		c.Cluster = a.cluster
	}
	if cmd.Flags().Changed("namespace") {
		c.Namespace = a.namespace
	}
	return a.lead(c, hub)
}

// lead makes a context lead somewhere else. Credentials are for one hub and not for the next.
func (a *app) lead(c *contexts.Context, hub string) error {
	switch {
	case hub != "":
		address, err := dial.ParseURL(hub)
		if err != nil {
			return usageError("%w", err)
		}
		if c.Hub != address.String() {
			*c = contexts.Context{Name: c.Name, Hub: address.String(), Namespace: c.Namespace, Cluster: c.Cluster}
		}
	case a.kubeconfig != "":
		path, err := filepath.Abs(a.kubeconfig)
		if err != nil {
			return fmt.Errorf("--kubeconfig: %w", err)
		}
		*c = contexts.Context{Name: c.Name, Kubeconfig: path, KubeContext: a.context, Namespace: c.Namespace, Cluster: c.Cluster}
	}
	return nil
}

func newContextDeleteCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "delete NAME",
		Short:             "Delete a context and its credentials",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete(a.contextNames),
		RunE: func(_ *cobra.Command, args []string) error {
			err := a.update(func(file *contexts.File) error {
				if !file.Delete(args[0]) {
					_, err := file.Get(args[0])
					return usageError("%w", err)
				}
				return nil
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "Context %s is deleted.\n", args[0])
			return nil
		},
	}
}

// contextNames are the names of all contexts, for completion.
func (a *app) contextNames(context.Context, string) ([]string, error) {
	file, err := a.contexts()
	if err != nil {
		return nil, err
	}
	return file.Names(), nil
}
