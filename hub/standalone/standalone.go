// SPDX-License-Identifier: Apache-2.0

// Package standalone runs the API server that comes with the hub, for places without a Kubernetes to run on.
//
// The API server is a child process: the same binary, started once more with the subcommand Command, which runs
// package plane. This package supervises it and does not link it. Everything is kept in one data directory.
package standalone

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"gopkg.in/natefinch/lumberjack.v2"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"ichor.maesh.dev/hub/hub/standalone/pki"
)

const (
	// orphanTimeout bounds the wait for the child of a killed supervisor.
	orphanTimeout = 15 * time.Second
	// maxLogMegabytes bounds the child's log; as much again is kept from before.
	maxLogMegabytes = 10
)

// Options say where and how to run.
type Options struct {
	// DataDir holds everything that must survive a restart. It is created for its owner alone.
	DataDir string
	// Binary is started as the API server; by default it is the running one.
	Binary string
	// Hosts are the names and addresses that the hub's own server is asked for by. They get a certificate that signs itself; without any
	// there is none.
	Hosts []string
	// Audit is what the API server writes down of what it is asked for; nothing by default.
	Audit Audit
	// Log takes the supervisor's messages. The API server's own go to apiserver.log in DataDir.
	Log logr.Logger
}

// Instance is a running API server.
type Instance struct {
	binary  string
	dir     layout
	hosts   []string
	audit   Audit
	log     logr.Logger
	backoff wait.Backoff // Paces restarts of the child.

	lock     *fileLock          // Set by open.
	files    pki.Files          // Set by open.
	listener *net.TCPListener   // Set by open.
	childLog *lumberjack.Logger // Set by open.

	stopOnce sync.Once
	stopErr  error         // What Stop returns.
	stopping chan struct{} // Closed when a stop was asked for.
	done     chan struct{} // Closed when the child is gone for good.
	err      error         // What Wait returns; valid after done.
}

// Start returns when the API serves with the hub's definitions and roles installed. Its context bounds the start
// only: the API server runs until Stop, or until this process ends.
func Start(ctx context.Context, o Options) (_ *Instance, err error) {
	i, err := newInstance(o)
	if err != nil {
		return nil, err
	}
	// First of all, so that two starts cannot both get as far as touching anything else.
	if err := i.acquire(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, i.Stop())
		}
	}()
	if err := i.open(ctx); err != nil {
		close(i.done) // There is no child to wait for.
		return nil, err
	}
	child, err := i.startChild()
	if err != nil {
		close(i.done)
		return nil, err
	}
	go i.supervise(child)
	if err := i.waitReady(ctx, child); err != nil {
		return nil, err
	}
	if err := install(ctx, i.AdminConfig()); err != nil {
		return nil, err
	}
	return i, nil
}

func newInstance(o Options) (*Instance, error) {
	if o.DataDir == "" {
		return nil, errors.New("no data directory is given")
	}
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return nil, fmt.Errorf("finding data directory: %w", err)
	}
	if o.Binary == "" {
		if o.Binary, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("finding this program's binary: %w", err)
		}
	}
	audit, err := o.Audit.absolute()
	if err != nil {
		return nil, err
	}
	return &Instance{
		binary: o.Binary, dir: layout(dir), hosts: o.Hosts, audit: audit, log: o.Log, backoff: restarts,
		stopping: make(chan struct{}), done: make(chan struct{}),
	}, nil
}

// acquire takes the data directory for this process.
func (i *Instance) acquire() error {
	if err := os.MkdirAll(i.dir.dir(), 0o700); err != nil {
		return fmt.Errorf("creating data directory: %w", err)
	}
	var err error
	i.lock, err = lockDataDir(i.dir.dir(), i.dir.lock())
	return err
}

// open prepares everything that the child needs.
func (i *Instance) open(ctx context.Context) error {
	// The directory may have been there before, with other rights.
	if err := os.Chmod(i.dir.dir(), 0o700); err != nil { //nolint:gosec // A directory must be executable.
		return fmt.Errorf("closing data directory to others: %w", err)
	}
	if err := waitForOrphan(ctx, i.dir.childLock(), orphanTimeout); err != nil {
		return err
	}
	var err error
	if i.files, err = pki.Ensure(i.dir.pki(), time.Now()); err != nil {
		return err
	}
	if err := i.ensureCertificate(); err != nil {
		return err
	}
	if i.listener, err = listen(i.dir.port()); err != nil {
		return err
	}
	i.childLog = &lumberjack.Logger{Filename: i.dir.childLog(), MaxSize: maxLogMegabytes, MaxBackups: 1}
	return i.writeKubeconfigs()
}

func (i *Instance) writeKubeconfigs() error {
	if err := writeKubeconfig(i.dir.kubeconfig(), i.server(), "ichor-admin", i.files.CA, i.files.Admin); err != nil {
		return err
	}
	return writeKubeconfig(i.dir.hubKubeconfig(), i.server(), pki.HubUser, i.files.CA, i.files.Hub)
}

// ensureCertificate keeps the certificate of the hub's own server.
func (i *Instance) ensureCertificate() error {
	if len(i.hosts) == 0 {
		return nil
	}
	return i.Certificate().Ensure(i.hosts, time.Now())
}

// Certificate are the files with the certificate of the hub's own server. It signs itself, and is renewed before it ends.
func (i *Instance) Certificate() pki.SelfSigned { return pki.SelfSignedIn(i.dir.pki()) }

func (i *Instance) server() string { return "https://" + i.listener.Addr().String() }

// RESTConfig is the hub's own access: user ichor-hub, with the rights of its ClusterRole and no others.
func (i *Instance) RESTConfig() *rest.Config {
	return restConfig(i.server(), i.files.CA, i.files.Hub)
}

// AdminConfig is the administrator's access, which nothing restricts.
func (i *Instance) AdminConfig() *rest.Config {
	return restConfig(i.server(), i.files.CA, i.files.Admin)
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (i *Instance) Kubeconfig() string { return i.dir.kubeconfig() }

// HubKubeconfig is the path of a kubeconfig with the hub's own access.
func (i *Instance) HubKubeconfig() string { return i.dir.hubKubeconfig() }

// Wait returns when the API server is gone for good: nil after Stop, else why it could not be kept up.
func (i *Instance) Wait() error {
	<-i.done
	return i.err
}

// Stop stops the API server and gives the data directory up. More calls do nothing more.
func (i *Instance) Stop() error {
	i.stopOnce.Do(func() {
		close(i.stopping)
		<-i.done
		i.stopErr = i.release()
	})
	return i.stopErr
}

func (i *Instance) release() error {
	var errs []error
	if i.listener != nil {
		errs = append(errs, i.listener.Close())
	}
	if i.childLog != nil {
		errs = append(errs, i.childLog.Close())
	}
	// Last: from here on the directory is somebody else's.
	return errors.Join(append(errs, i.lock.release())...)
}
