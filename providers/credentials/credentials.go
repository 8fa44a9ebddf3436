// SPDX-License-Identifier: Apache-2.0

// Package credentials reads the kubeconfig and talosconfig of targets, in the shapes that Cluster API providers write and users bring.
package credentials

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/providers/target"
)

// Keys of the Secrets, as Cluster API and its Talos bootstrap provider name them.
const (
	KubeconfigKey  = "value"
	TalosconfigKey = "talosconfig"
)

// ErrMissing means that a Secret, or the key in it, does not exist.
var ErrMissing = errors.New("missing")

// ErrInvalid means that a credential cannot be used as it is.
var ErrInvalid = errors.New("invalid")

// Kubeconfig is a usable kubeconfig.
type Kubeconfig struct {
	// Config reaches the target's Kubernetes API.
	Config *rest.Config

	// Version changes with the Secret.
	Version string

	// Expires is when the client certificate ends; zero where there is none.
	Expires time.Time
}

// Talosconfig is a usable context of a talosconfig.
type Talosconfig struct {
	// Context holds endpoints and keys.
	Context *clientconfig.Context

	// Name is the name of the context.
	Name string

	// Version changes with the Secret and the choice of context.
	Version string

	// Expires is when the client certificate ends.
	Expires time.Time
}

// Store reads credentials from Secrets of the management cluster.
type Store struct {
	// Reader reads Secrets.
	Reader client.Reader
}

// Kubeconfig reads the kubeconfig of a target. The error wraps ErrMissing or ErrInvalid where one of them is the reason.
func (s *Store) Kubeconfig(ctx context.Context, t target.Target) (*Kubeconfig, error) {
	data, version, err := s.read(ctx, t.Namespace, t.KubeconfigSecret, KubeconfigKey)
	if err != nil {
		return nil, err
	}
	parsed, err := ParseKubeconfig(data)
	if err != nil {
		return nil, fmt.Errorf("secret %s/%s, key %q: %w", t.Namespace, t.KubeconfigSecret, KubeconfigKey, err)
	}
	parsed.Version = version
	return parsed, nil
}

// Talosconfig reads the talosconfig of a target. The error wraps ErrMissing or ErrInvalid where one of them is the reason.
func (s *Store) Talosconfig(ctx context.Context, t target.Target) (*Talosconfig, error) {
	data, version, err := s.read(ctx, t.Namespace, t.TalosconfigSecret, TalosconfigKey)
	if err != nil {
		return nil, err
	}
	parsed, err := ParseTalosconfig(data, t.TalosconfigContext, t.Name)
	if err != nil {
		return nil, fmt.Errorf("secret %s/%s, key %q: %w", t.Namespace, t.TalosconfigSecret, TalosconfigKey, err)
	}
	parsed.Version = version + "/" + parsed.Name
	return parsed, nil
}

func (s *Store) read(ctx context.Context, namespace, name, key string) ([]byte, string, error) {
	secret := &corev1.Secret{}
	err := s.Reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, "", fmt.Errorf("secret %s/%s is %w", namespace, name, ErrMissing)
	case err != nil:
		return nil, "", fmt.Errorf("reading secret %s/%s: %w", namespace, name, err)
	}
	data, ok := secret.Data[key]
	if !ok || len(data) == 0 {
		return nil, "", fmt.Errorf("key %q of secret %s/%s is %w", key, namespace, name, ErrMissing)
	}
	return data, secret.ResourceVersion, nil
}
