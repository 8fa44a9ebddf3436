// SPDX-License-Identifier: Apache-2.0

// Package framework holds what tests of several packages share: the API server that they run on and the
// binaries that they start. It builds nothing.
package framework

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/hub/standalone"
)

// Plane is a management API server with the hub's definitions and roles, empty otherwise. Unlike envtest's it
// collects garbage and deletes namespaces.
type Plane struct {
	// Config is the administrator's access.
	Config *rest.Config
	// HubConfig is the hub's own access: what its ClusterRole grants, and no more.
	HubConfig *rest.Config
	// Kubeconfig is the path of the administrator's kubeconfig, and HubKubeconfig of the hub's own.
	Kubeconfig    string
	HubKubeconfig string

	dir      string
	instance *standalone.Instance
}

// StartPlane starts the API server of the hub's binary in a directory of its own. The context bounds the start
// only. Start one per test package and use one namespace per test.
func StartPlane(ctx context.Context) (*Plane, error) {
	binary, err := Binary("ichor-hub")
	if err != nil {
		return nil, err
	}
	audit, err := Audit()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "ichor-plane-")
	if err != nil {
		return nil, fmt.Errorf("creating directory of the test API server: %w", err)
	}
	instance, err := standalone.Start(ctx, standalone.Options{DataDir: dir, Binary: binary, Audit: audit, Log: logr.Discard()})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting the test API server: %w", withLog(err, dir)), os.RemoveAll(dir))
	}
	plane := &Plane{
		Config:        instance.AdminConfig(),
		HubConfig:     instance.RESTConfig(),
		Kubeconfig:    instance.Kubeconfig(),
		HubKubeconfig: instance.HubKubeconfig(),
		dir:           dir,
		instance:      instance,
	}
	if err := plane.awaitPolicies(ctx); err != nil {
		return nil, errors.Join(err, plane.Stop())
	}
	return plane, nil
}

// awaitPolicies returns when operations that say nothing get their creator from the API server. For some seconds after its start it refuses
// them: it looks for the schemas of the objects that policies change every five seconds.
func (p *Plane) awaitPolicies(ctx context.Context) error {
	admin, err := client.New(p.Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		return fmt.Errorf("connecting to the test API server: %w", err)
	}
	err = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		op := &v1alpha1.TalosOperation{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "probe"},
			Spec:       v1alpha1.TalosOperationSpec{ClusterName: "probe", Kind: v1alpha1.TalosKind},
		}
		if err := admin.Create(ctx, op, client.DryRunAll); err != nil {
			return false, client.IgnoreNotFound(ignoreNotYet(err)) // The namespace is made a moment after the start, too.
		}
		return op.Annotations[v1alpha1.CreatedByAnnotation] != "", nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the admission policies: %w", err)
	}
	return nil
}

// ignoreNotYet ignores what the API server says as long as it does not fill in who created an operation.
func ignoreNotYet(err error) error {
	if apierrors.IsServiceUnavailable(err) || apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

// Stop stops the API server and removes its directory.
func (p *Plane) Stop() error {
	return errors.Join(p.instance.Stop(), os.RemoveAll(p.dir))
}

// KillServer kills the API server with signal 9. Another one is started at once on the same data and the same address.
func (p *Plane) KillServer() error {
	pid, err := childWith(os.Getpid(), p.dir)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("killing the test API server: %w", err)
	}
	return nil
}

// withLog adds the end of the API server's log to an error, since its directory is about to be removed.
func withLog(err error, dir string) error {
	const most = 2 << 10
	log, readErr := os.ReadFile(filepath.Join(dir, "apiserver.log"))
	if readErr != nil || len(log) == 0 {
		return err
	}
	return fmt.Errorf("%w\nend of its log:\n%s", err, log[max(0, len(log)-most):])
}
