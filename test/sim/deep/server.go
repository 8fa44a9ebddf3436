// SPDX-License-Identifier: Apache-2.0

package deep

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"ichor.maesh.dev/hub/test/sim/component"
	"ichor.maesh.dev/hub/test/sim/secrets"
)

// server is a run of a machine's API server.
type server struct {
	process *process
	ready   bool
	part    component.Part
	files   *secrets.Files // What it has started with.
}

// readyWithin is how long an API server may take until it serves, on few processors that others use as well.
const readyWithin = 2 * time.Minute

// Start starts a machine's static pod anew, and returns when it serves. Parts that nothing runs behind are there at once.
func (c *Cluster) Start(ctx context.Context, name string, part component.Part) error {
	if part.Name != component.APIServer {
		return nil
	}
	select {
	case <-c.running:
	case <-ctx.Done():
		return ctx.Err()
	}
	n, err := c.node(name)
	if err != nil {
		return err
	}
	return c.startServer(ctx, n, part)
}

// startServer replaces the API server of a machine.
func (c *Cluster) startServer(ctx context.Context, n *node, part component.Part) error {
	s, err := c.replaceServer(ctx, n, part)
	if err != nil {
		return err
	}
	if err := c.awaitServer(ctx, n, s); err != nil {
		return err
	}
	c.change(func() { s.ready = true })
	c.group.Go(func() { c.keepServer(n, s) })
	return nil
}

func (c *Cluster) replaceServer(ctx context.Context, n *node, part component.Part) (*server, error) {
	n.pods.Lock()
	defer n.pods.Unlock()
	if err := c.endServer(n); err != nil {
		return nil, err
	}
	if err := errors.Join(ctx.Err(), c.life.Err()); err != nil {
		return nil, err
	}
	files, err := c.write(n)
	if err != nil {
		return nil, err
	}
	audit, err := n.auditArguments()
	if err != nil {
		return nil, err
	}
	run, err := program{
		binary: c.Binary, arguments: append(n.serverArguments(part, files), audit...), env: []string{"GOGC=50", "GOMAXPROCS=2"}, log: n.log(component.APIServer),
	}.start()
	if err != nil {
		return nil, err
	}
	s := &server{process: run, part: part, files: files}
	c.change(func() { n.server = s })
	return s, nil
}

// stopServer ends a machine's API server, if one runs.
func (c *Cluster) stopServer(n *node) error {
	n.pods.Lock()
	defer n.pods.Unlock()
	return c.endServer(n)
}

// endServer ends it at once: all that it knows is in etcd, and one that is asked to stop waits for its watches. The caller holds the lock of the pods.
func (c *Cluster) endServer(n *node) error {
	c.mu.Lock()
	s := n.server
	c.mu.Unlock()
	if s == nil {
		return nil
	}
	c.change(func() { n.server, s.ready = nil, false })
	return s.process.kill()
}

// keepServer starts an API server again when it has ended by itself, as a kubelet does.
func (c *Cluster) keepServer(n *node, s *server) {
	select {
	case <-s.process.ended:
	case <-c.life.Done():
		return
	}
	c.change(func() { s.ready = false })
	for await(c.life, nil, c.BackOff) == nil {
		c.mu.Lock()
		wanted := n.server == s
		c.mu.Unlock()
		if !wanted {
			return
		}
		err := c.startServer(c.life, n, s.part)
		if err == nil {
			return
		}
		c.Logger.Error(err, "An API server was not started again", "cluster", c.Name, "node", n.name)
		c.mu.Lock()
		s = n.server
		c.mu.Unlock()
		if s == nil {
			return
		}
	}
}

// awaitServer waits until an API server serves. It fails when that has ended.
func (c *Cluster) awaitServer(ctx context.Context, n *node, s *server) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	config, err := administrator.in(s.files)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}, Timeout: answerWithin}
	defer client.CloseIdleConnections()
	for {
		err := probe(ctx, client, "https://"+n.serverAddress()+"/readyz")
		if err == nil {
			return nil
		}
		if s.process.gone() {
			return fmt.Errorf("the API server of %s has ended, see %s: %w", n.name, n.log(component.APIServer), s.process.err)
		}
		if waited := await(ctx, s.process.ended, pollEvery); waited != nil {
			return fmt.Errorf("the API server of %s is not ready (%w): %w", n.name, err, waited)
		}
	}
}

func probe(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // It was only read.
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", response.Status, text)
	}
	return nil
}

func (n *node) serverAddress() string { return net.JoinHostPort(n.address, serverPort) }

// serverArguments are those that Talos gives to the API server. What the config says comes with the part; the certificates and keys are
// those on the machine's disk. The address is the machine's own, and nobody writes down the endpoints: Kubernetes refuses those in 127/8.
func (n *node) serverArguments(part component.Part, files *secrets.Files) []string {
	line := newArguments(part.Args)
	line.set(files.Flags(n.root())...)
	line.set(
		"--bind-address="+n.address, "--advertise-address="+n.address, "--secure-port="+serverPort,
		"--etcd-servers="+n.clientURL(), "--endpoint-reconciler-type=none", "--anonymous-auth=false",
		"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname", "--tls-min-version=VersionTLS12",
		"--disable-admission-plugins=TaintNodesByCondition", // No node controller would take the taint back.
	)
	line.setDefault("--authorization-mode=Node,RBAC")
	return line.list
}

// arguments is a command line without two values of one flag, but for flags that take several.
type arguments struct{ list []string }

func newArguments(list []string) *arguments { return &arguments{list: append([]string{}, list...)} }

func flagOf(argument string) string {
	name, _, _ := strings.Cut(argument, "=")
	return name
}

// set takes the place of what is there of the same flags.
func (a *arguments) set(list ...string) {
	theirs := map[string]bool{}
	for _, argument := range list {
		theirs[flagOf(argument)] = true
	}
	kept := a.list[:0]
	for _, argument := range a.list {
		if !theirs[flagOf(argument)] {
			kept = append(kept, argument)
		}
	}
	a.list = slices.Concat(kept, list)
}

// setDefault adds flags that are not there.
func (a *arguments) setDefault(argument string) {
	for _, there := range a.list {
		if flagOf(there) == flagOf(argument) {
			return
		}
	}
	a.list = append(a.list, argument)
}
