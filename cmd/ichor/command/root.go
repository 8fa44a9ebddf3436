// SPDX-License-Identifier: Apache-2.0

// Package command is the command line: what people type, and what they read.
package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"ichor.maesh.dev/hub/cmd/ichor/follow"
)

// Surroundings are what a command finds where it runs.
type Surroundings struct {
	In       io.Reader
	Out, Err io.Writer

	// InTerminal says that a person can answer, OutTerminal that one looks on, of a terminal of some Size.
	InTerminal, OutTerminal bool
	Size                    func() (width, height int)

	Getenv  func(string) string
	Now     func() time.Time
	Version string

	// Browse opens a page in the user's browser.
	Browse func(url string) error
}

// Process are the surroundings of this process.
func Process(version string) Surroundings {
	return Surroundings{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		InTerminal: term.IsTerminal(int(os.Stdin.Fd())), OutTerminal: term.IsTerminal(int(os.Stdout.Fd())),
		Size: func() (int, int) {
			width, height, err := term.GetSize(int(os.Stdout.Fd()))
			if err != nil {
				return 80, 24
			}
			return width, height
		},
		Getenv: os.Getenv, Now: time.Now, Version: version, Browse: browse,
	}
}

// app carries what every command needs.
type app struct {
	Surroundings

	plugin bool // It was called as kubectl ichor.

	kubeconfig, context string // Flags.
	namespace, cluster  string // Flags; empty means what the context remembers.
	output              string
	timeout             time.Duration
	noColour            bool

	clusterSet bool // --cluster was given, perhaps to ask for none.
	follows    bool // The command follows an operation once it is there.

	connection *connection // Set by connect.
	key        string      // Of this call of the command; see startFlags.
}

// defaultTimeout is how long one answer may take.
const defaultTimeout = time.Minute

// New is the whole command. plugin makes it one of kubectl's: flags mean what they mean there.
func New(s Surroundings, plugin bool) *cobra.Command {
	a := &app{Surroundings: s, plugin: plugin, key: uuid.NewString()}
	root := &cobra.Command{
		Use:   "ichor",
		Short: "Run operations on many Talos Linux clusters from one place",
		Long: `Run operations on many Talos Linux clusters from one place.

ichor works with a hub that you have signed in to (ichor login URL), or with the management API that a kubeconfig leads to: then it does
in your own process, with your own rights, what a hub would do. Which of them, the first of these says:

  --kubeconfig FILE    the management API; --context names a context of the file
  --context NAME       a context of ichor (ichor context list), or else one of the kubeconfig
  $ICHOR_CONTEXT       a context of ichor
  ichor context use    the current context of ichor
  $KUBECONFIG          the management API, or ~/.kube/config

Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 error, 2 wrong usage, 3 the operation needs a
person, 4 something differs (config diff), 5 it still went on when --timeout was over, 130 interrupted.`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		DisableAutoGenTag: true,
		Version:           s.Version,
		Args:              cobra.NoArgs,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	if plugin {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl ichor"}
		root.Long = pluginHelp
	}
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError("%w; see: %s --help", err, cmd.CommandPath())
	})
	a.addFlags(root)
	root.AddCommand(
		newClusterCommand(a), newMachineCommand(a), newUpgradeCommand(a), newNodeCommand(a), newConfigCommand(a), newOperationCommand(a),
		newSnapshotCommand(a), newGitOpsCommand(a),
		newAuditCommand(a), newWhoamiCommand(a), newVersionCommand(a),
	)
	if !plugin {
		root.AddCommand(newLoginCommand(a), newLogoutCommand(a), newContextCommand(a))
	}
	usageErrors(root)
	return root
}

const pluginHelp = `Run operations on many Talos Linux clusters from one place.

kubectl ichor works with the management API that the kubeconfig leads to, with your own rights. The flags --kubeconfig, --context,
--namespace and --all-namespaces are those of kubectl. To work with a hub that you have signed in to, call the program as ichor.`

func (a *app) addFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&a.kubeconfig, "kubeconfig", "", "kubeconfig of the management API")
	flags.StringVar(&a.context, "context", "", "context of ichor, or of the kubeconfig")
	flags.StringVarP(&a.namespace, "namespace", "n", "", "namespace (default: that of the context)")
	flags.StringVar(&a.cluster, "cluster", "", "cluster to work with (default: that of the context)")
	flags.StringVarP(&a.output, "output", "o", outputTable, "format: "+strings.Join(outputs, ", "))
	flags.DurationVar(&a.timeout, "timeout", 0, "how long to wait for an answer (default 1m), or for the end of what is followed (default: without end)")
	flags.BoolVar(&a.noColour, "no-color", false, "no colours; $NO_COLOR does the same")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		a.clusterSet = cmd.Flags().Changed("cluster")
		if err := cmd.ValidateFlagGroups(); err != nil {
			return usageError("%w; see: %s --help", err, cmd.CommandPath())
		}
		if a.timeout < 0 {
			return usageError("--timeout %s is negative", a.timeout)
		}
		return checkOutput(a.output)
	}
	a.completeFlags(root)
}

// usageErrors makes wrong arguments of every command errors of usage.
func usageErrors(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usageError("%w; see: %s --help", err, cmd.CommandPath())
			}
			return nil
		}
	}
	for _, child := range cmd.Commands() {
		usageErrors(child)
	}
}

// group is a command that only has others.
func group(use, short string, aliases []string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Aliases: aliases, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usageError("%s needs a command; see: %[1]s --help", cmd.CommandPath())
		},
	}
	cmd.AddCommand(children...)
	return cmd
}

// deadline bounds one answer. Where something is followed, --timeout is about its end.
func (a *app) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.timeout > 0 && !a.follows {
		return context.WithTimeout(ctx, a.timeout)
	}
	return context.WithTimeout(ctx, defaultTimeout)
}

// patience bounds following something.
func (a *app) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.timeout > 0 {
		return context.WithTimeout(ctx, a.timeout)
	}
	return context.WithCancel(ctx)
}

// dumb says that the terminal cannot move its cursor.
func (a *app) dumb() bool { return a.Getenv("TERM") == "dumb" }

func (a *app) style() follow.Style {
	return follow.Style{Colour: a.OutTerminal && !a.noColour && a.Getenv("NO_COLOR") == "" && !a.dumb()}
}

// remark says something that is no result. What hubs and providers say in it cannot move the cursor.
func (a *app) remark(format string, args ...any) {
	for i, arg := range args {
		switch text := arg.(type) {
		case string:
			args[i] = follow.Plain(text)
		case error:
			args[i] = follow.Plain(text.Error())
		}
	}
	fmt.Fprintf(a.Err, format+"\n", args...)
}
