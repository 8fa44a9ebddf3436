// SPDX-License-Identifier: Apache-2.0

// Package e2e proves the whole: the hub's and the CLI's own binaries against a simulated fleet.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"ichor.maesh.dev/hub/hub/standalone/pki"
	"ichor.maesh.dev/hub/test/framework"
	"ichor.maesh.dev/hub/test/sim"
)

// Installation is a standalone hub, run as a process so that it can be killed, and a simulated fleet.
type Installation struct {
	// Fleet is the simulated fleet.
	Fleet *sim.Simulator

	dir, cliBinary string
	address        string // Where the hub serves, each time that it starts.

	flags []string

	hub *framework.Daemon
}

// Install starts a fleet and a hub below dir, and imports no cluster yet.
func Install(ctx context.Context, dir string, speed float64, clusters ...sim.ClusterSpec) (*Installation, error) {
	i := &Installation{dir: dir}
	var err error
	if i.cliBinary, err = framework.Binary("ichor"); err != nil {
		return nil, err
	}
	if i.address, err = framework.FreeAddress(ctx); err != nil {
		return nil, err
	}
	i.Fleet, err = sim.Start(ctx, sim.Options{Dir: i.FleetDir(), Speed: speed, Clusters: clusters})
	if err != nil {
		return nil, fmt.Errorf("starting the fleet: %w", err)
	}
	if err := i.StartHub(ctx); err != nil {
		return nil, errors.Join(err, i.Stop())
	}
	return i, nil
}

// StartHub starts the hub and returns when it is ready.
func (i *Installation) StartHub(ctx context.Context) error {
	audit, err := framework.AuditFlags()
	if err != nil {
		return err
	}
	args := slices.Concat([]string{"serve", "--standalone", "--data-dir", i.HubDir(), "--listen", i.address}, i.flags, audit)
	hub, err := framework.StartDaemon(ctx, i.HubLog(), "ichor-hub", args...)
	if err != nil {
		return err
	}
	i.hub = hub
	return nil
}

// RestartHub ends the hub in good order, and starts it again with more flags.
func (i *Installation) RestartHub(ctx context.Context, flags ...string) error {
	if err := i.hub.End(syscall.SIGTERM); err != nil {
		return err
	}
	i.flags = flags
	return i.StartHub(ctx)
}

// FleetDir is where the simulated fleet keeps what people need to reach its clusters.
func (i *Installation) FleetDir() string { return filepath.Join(i.dir, "fleet") }

// HubDir is the data directory of the hub.
func (i *Installation) HubDir() string { return filepath.Join(i.dir, "hub") }

// HubURL is where the hub serves.
func (i *Installation) HubURL() string { return "https://" + i.address }

// HubCertificate is the file with the certificate that the hub serves with. It signs itself.
func (i *Installation) HubCertificate() string {
	return pki.SelfSignedIn(filepath.Join(i.HubDir(), "pki")).Certificate
}

// LoginLink is a link that signs in once, as ichor-hub login-link prints it.
func (i *Installation) LoginLink(ctx context.Context) (string, error) {
	binary, err := framework.Binary("ichor-hub")
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, binary, "login-link", "--data-dir", i.HubDir()).Output()
	if err != nil {
		return "", fmt.Errorf("running ichor-hub login-link: %w", err)
	}
	_, link, _ := strings.Cut(strings.TrimSpace(string(out)), ": ")
	return link, nil
}

// KillAPIServer kills the hub's API server with signal 9; the hub starts another one.
func (i *Installation) KillAPIServer() error {
	pid, err := framework.Child(i.HubPID())
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// HubLog is the file with the hub's log.
func (i *Installation) HubLog() string { return filepath.Join(i.dir, "hub.log") }

// HubPID is the process ID of the hub.
func (i *Installation) HubPID() int { return i.hub.PID() }

// KillHub kills the hub with signal 9 and returns when it is gone.
func (i *Installation) KillHub() error { return i.hub.End(syscall.SIGKILL) }

// Stop ends the hub and the fleet.
func (i *Installation) Stop() error {
	var err error
	if i.hub != nil {
		err = i.hub.End(syscall.SIGTERM)
	}
	i.Fleet.Stop()
	return err
}

// Kubeconfig is the administrator's kubeconfig of the management API.
func (i *Installation) Kubeconfig() string { return filepath.Join(i.HubDir(), "kubeconfig") }

// RESTConfig is the administrator's access to the management API.
func (i *Installation) RESTConfig() (*rest.Config, error) {
	return clientcmd.BuildConfigFromFlags("", i.Kubeconfig())
}

// Result is how a command ended.
type Result struct {
	Out, Err string
	Code     int
}

// String is all that a user would have seen.
func (r Result) String() string {
	return fmt.Sprintf("exit code %d\n%s%s", r.Code, r.Out, r.Err)
}

// CLI runs ichor to its end, on the management API.
func (i *Installation) CLI(ctx context.Context, args ...string) (Result, error) {
	return i.run(ctx, []string{"KUBECONFIG=" + i.Kubeconfig(), "ICHOR_CONFIG=" + filepath.Join(i.dir, "none.yaml")}, args...)
}

// HubCLI runs ichor to its end, on the hub that SignIn has signed in to.
func (i *Installation) HubCLI(ctx context.Context, args ...string) (Result, error) {
	return i.run(ctx, []string{"KUBECONFIG=" + filepath.Join(i.dir, "none"), "ICHOR_CONFIG=" + filepath.Join(i.dir, "ichor.yaml")}, args...)
}

// SignIn signs ichor in to the hub by a link, as its administrator does.
func (i *Installation) SignIn(ctx context.Context) error {
	link, err := i.LoginLink(ctx)
	if err != nil {
		return err
	}
	result, err := i.HubCLI(ctx, "login", "--link", link, "--ca-file", i.HubCertificate())
	if err != nil {
		return err
	}
	if result.Code != 0 {
		return fmt.Errorf("signing in: %s", result)
	}
	return nil
}

func (i *Installation) run(ctx context.Context, env []string, args ...string) (Result, error) {
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, i.cliBinary, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Result{}, fmt.Errorf("running ichor %s: %w", strings.Join(args, " "), err)
	}
	return Result{Out: out.String(), Err: errOut.String(), Code: cmd.ProcessState.ExitCode()}, nil
}

// CLIJSON runs ichor and reads its output as JSON.
func (i *Installation) CLIJSON(ctx context.Context, into any, args ...string) error {
	result, err := i.CLI(ctx, append(args, "-o", "json")...)
	if err != nil {
		return err
	}
	if result.Code != 0 {
		return fmt.Errorf("ichor %s: %s", strings.Join(args, " "), result)
	}
	return json.Unmarshal([]byte(result.Out), into)
}

// Import imports clusters of the fleet by the CLI.
func (i *Installation) Import(ctx context.Context, names ...string) error {
	for _, name := range names {
		cluster := i.Fleet.Cluster(name)
		files := map[string][]byte{"kubeconfig": cluster.Kubeconfig(), "talosconfig": cluster.Talosconfig()}
		args := []string{"cluster", "import", name}
		for kind, data := range files {
			path := filepath.Join(i.dir, name+"."+kind)
			if err := os.WriteFile(path, data, 0o600); err != nil {
				return fmt.Errorf("writing the %s of %s: %w", kind, name, err)
			}
			args = append(args, "--from-"+kind, path)
		}
		result, err := i.CLI(ctx, args...)
		if err != nil {
			return err
		}
		if result.Code != 0 {
			return fmt.Errorf("importing %s: %s", name, result)
		}
	}
	return nil
}

// Unavailable are the clusters that the hub cannot work on.
func (i *Installation) Unavailable(ctx context.Context) ([]string, error) {
	var list struct {
		Clusters []struct {
			Ref        struct{ Name string }
			Conditions []struct{ Type, Status string }
		}
	}
	if err := i.CLIJSON(ctx, &list, "cluster", "list"); err != nil {
		return nil, err
	}
	var names []string
	for _, cluster := range list.Clusters {
		available := false
		for _, condition := range cluster.Conditions {
			available = available || condition.Type == "Available" && condition.Status == "CONDITION_STATUS_TRUE"
		}
		if !available {
			names = append(names, cluster.Ref.Name)
		}
	}
	return names, nil
}
