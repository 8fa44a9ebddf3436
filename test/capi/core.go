// SPDX-License-Identifier: Apache-2.0

// Package capi runs Cluster API's own core controllers beside the hub, on the hub's management API and under the rights that Cluster API
// gives them. Its webhooks are not installed, so objects have to be complete as they are written.
package capi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"

	"ichor.maesh.dev/hub/test/framework"
)

// coreUser is who the core controllers are: the service account of Cluster API's own manifests.
const coreUser = "system:serviceaccount:capi-system:capi-manager"

// Binary is the core controllers' binary, and an error that says how to get it where it is not built.
func Binary() (string, error) {
	path, err := framework.Binary("capi-core")
	if err != nil {
		return "", fmt.Errorf("%w (or `make build-capi-core`)", err)
	}
	return path, nil
}

// Core is a running manager of Cluster API's core controllers.
type Core struct {
	dir     string
	metrics string
	health  string
	process *exec.Cmd
	gone    chan struct{}
}

// Start installs Cluster API's definitions and roles, runs its core controllers against the management API of a kubeconfig, and returns
// when they are ready.
func Start(ctx context.Context, dir, kubeconfig string) (*Core, error) {
	binary, err := Binary()
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	if err := install(ctx, config, binary+"-config"); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the directory of the core controllers: %w", err)
	}
	c := &Core{dir: dir, gone: make(chan struct{})}
	if err := c.run(binary, kubeconfig); err != nil {
		return nil, err
	}
	if err := c.ready(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Core) run(binary, kubeconfig string) error {
	as := filepath.Join(c.dir, "kubeconfig")
	if err := impersonate(kubeconfig, as); err != nil {
		return err
	}
	if err := c.writeCertificate(); err != nil {
		return err
	}
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	c.metrics, c.health = "127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1]
	log, err := os.Create(c.Log())
	if err != nil {
		return fmt.Errorf("creating the log of the core controllers: %w", err)
	}
	c.process = exec.Command(binary, "--kubeconfig", as, "--webhook-cert-dir", c.dir, "--webhook-port", ports[2], //nolint:noctx // It outlives the context of its start.
		"--diagnostics-address", c.metrics, "--insecure-diagnostics", "--health-addr", c.health,
		"--skip-crd-migration-phases", "StorageVersionMigration,CleanupManagedFields", "-v", "4")
	c.process.Stdout, c.process.Stderr = log, log
	if err := c.process.Start(); err != nil {
		return fmt.Errorf("starting the core controllers: %w", err)
	}
	go func() {
		defer close(c.gone)
		_ = c.process.Wait()
		_ = log.Close()
	}()
	return nil
}

// impersonate writes a kubeconfig of an administrator who acts as the core controllers' service account.
func impersonate(kubeconfig, path string) error {
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = coreUser
	}
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// writeCertificate gives the webhook server, to which nobody talks, what it needs to start.
func (c *Core) writeCertificate() error {
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err != nil {
		return fmt.Errorf("making a certificate: %w", err)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(c.dir, "tls.crt"), certificate, 0o600),
		os.WriteFile(filepath.Join(c.dir, "tls.key"), key, 0o600),
	)
}

// freePorts finds ports that differ, since all are held until the last is found.
func freePorts(n int) ([]string, error) {
	if n == 0 {
		return nil, nil
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // It is closed at once.
	if err != nil {
		return nil, fmt.Errorf("finding a free port: %w", err)
	}
	defer func() { _ = listener.Close() }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return nil, fmt.Errorf("reading a free port: %w", err)
	}
	others, err := freePorts(n - 1)
	return append(others, port), err
}

func (c *Core) ready(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		select {
		case <-c.gone:
			return false, errors.New("they ended")
		default:
		}
		_, err := get(ctx, "http://"+c.health+"/readyz")
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the core controllers, see %s: %w\n%s", c.Log(), err, c.lastWords())
	}
	return nil
}

func (c *Core) lastWords() string {
	const most = 2 << 10
	log, _ := os.ReadFile(c.Log())
	return string(log[max(0, len(log)-most):])
}

func get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	return io.ReadAll(response.Body)
}

// Log is the file with the controllers' log.
func (c *Core) Log() string { return filepath.Join(c.dir, "core.log") }

// Metric sums the series of a metric whose labels contain all that is given, such as `controller="machine"`.
func (c *Core) Metric(ctx context.Context, name string, labels ...string) (float64, error) {
	page, err := get(ctx, "http://"+c.metrics+"/metrics")
	if err != nil {
		return 0, fmt.Errorf("reading the metrics of the core controllers: %w", err)
	}
	sum := 0.0
	for scanner := bufio.NewScanner(bytes.NewReader(page)); scanner.Scan(); {
		line := scanner.Text()
		if !strings.HasPrefix(line, name+"{") || !containsAll(line, labels) {
			continue
		}
		var value float64
		if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &value); err != nil {
			return 0, fmt.Errorf("reading metric %q: %w", line, err)
		}
		sum += value
	}
	return sum, nil
}

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// Stop ends the controllers.
func (c *Core) Stop() error {
	if err := c.process.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ending the core controllers: %w", err)
	}
	<-c.gone
	return nil
}
