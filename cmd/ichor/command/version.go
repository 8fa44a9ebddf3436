// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"connectrpc.com/connect"
	"github.com/blang/semver/v4"
	"github.com/spf13/cobra"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
)

// versions is what ichor version prints.
type versions struct {
	Client string `json:"client"`
	Hub    string `json:"hub,omitempty"`
	Where  string `json:"where,omitempty"`
	Skew   string `json:"skew,omitempty"`
}

func newVersionCommand(a *app) *cobra.Command {
	var client bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this command and of the hub",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found := versions{Client: a.Version}
			if !client {
				if err := a.findHub(cmd.Context(), &found); err != nil {
					a.remark("Warning: %v", err)
				}
			}
			return a.printVersions(found)
		},
	}
	cmd.Flags().BoolVar(&client, "client", false, "print the version of this command alone")
	return cmd
}

// findHub asks the hub of the context for its version. With a kubeconfig there is none: the service is in this process.
func (a *app) findHub(ctx context.Context, found *versions) error {
	chosen, err := a.choose()
	if err != nil || chosen.context == nil || chosen.context.Hub == "" {
		return err
	}
	if err := a.connect(); err != nil {
		return err
	}
	defer a.disconnect()
	found.Where = a.connection.where
	hub, err := call(ctx, a, a.connection.hub.GetHub, &pb.GetHubRequest{})
	if err != nil {
		return err
	}
	found.Hub = hub.GetVersion()
	if err := skew(a.Version, hub); err != nil {
		found.Skew = err.Error()
	}
	return nil
}

func (a *app) printVersions(found versions) error {
	switch {
	case a.output == outputJSON || a.output == outputYAML || a.output == outputJSONL:
		data, err := json.Marshal(found)
		if err != nil {
			return fmt.Errorf("writing JSON: %w", err)
		}
		return a.printJSON(data)
	case found.Where == "":
		fmt.Fprintln(a.Out, found.Client)
		return nil
	}
	lines := [][2]string{{"Client", found.Client}, {"Hub", found.Hub}, {"Where", found.Where}, {"Skew", found.Skew}}
	return a.printLines(lines)
}

// skewGuard refuses writes where this command and the hub are too far apart: each may have learned since what the other does not know.
type skewGuard struct {
	client string
	hub    ichorv1alpha1connect.HubServiceClient

	mu      sync.Mutex
	checked bool
}

func (g *skewGuard) interceptor() connect.Interceptor {
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
			if request.Spec().IdempotencyLevel != connect.IdempotencyNoSideEffects {
				if err := g.check(ctx); err != nil {
					return nil, err
				}
			}
			return next(ctx, request)
		}
	})
}

func (g *skewGuard) check(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.checked {
		return nil
	}
	response, err := g.hub.GetHub(ctx, connect.NewRequest(&pb.GetHubRequest{}))
	if err != nil {
		return err
	}
	if err := skew(g.client, response.Msg); err != nil {
		return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("%w; nothing was changed", err))
	}
	g.checked = true
	return nil
}

// skew says whether a client may write to a hub, and what to do if it may not. Versions that are no release, such as those of people who
// work on ichor, may.
func skew(client string, hub *pb.GetHubResponse) error {
	mine, known := release(client)
	if !known {
		return nil
	}
	if oldest, limited := release(hub.GetOldestClient()); limited && mine.LT(oldest) {
		return fmt.Errorf("this is ichor %s, and the hub (%s) takes writes from %s on: install ichor %[2]s", client, hub.GetVersion(), hub.GetOldestClient())
	}
	theirs, known := release(hub.GetVersion())
	const minors = 1
	if known && (mine.Major != theirs.Major || max(mine.Minor, theirs.Minor)-min(mine.Minor, theirs.Minor) > minors) {
		return fmt.Errorf("this is ichor %s, and the hub is %s, which is more than one minor version away: install ichor %[2]s", client, hub.GetVersion())
	}
	return nil
}

// release reads the version of a release; false if it is that of something else.
func release(version string) (parsed semver.Version, is bool) {
	parsed, err := semver.Parse(strings.TrimPrefix(version, "v"))
	return parsed, err == nil && len(parsed.Pre) == 0
}
