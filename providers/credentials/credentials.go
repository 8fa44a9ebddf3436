// SPDX-License-Identifier: Apache-2.0

// Package credentials reads the kubeconfig and talosconfig of targets, in the shapes that Cluster API providers write and users bring.
package credentials

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
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
	parsed, err := ParseKubeconfig(data, KubeconfigOptions{AllowInsecure: t.AllowInsecure})
	if err != nil {
		return nil, fmt.Errorf("secret %s/%s, key %q: %w", t.Namespace, t.KubeconfigSecret, KubeconfigKey, err)
	}
	parsed.Version = kubeconfigVersion(version, t)
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
	parsed.Version = talosconfigVersion(version, t)
	return parsed, nil
}

// KubeconfigVersion is the Version that Kubeconfig would return, without the work of reading what the Secret holds.
func (s *Store) KubeconfigVersion(ctx context.Context, t target.Target) (string, error) {
	_, version, err := s.read(ctx, t.Namespace, t.KubeconfigSecret, KubeconfigKey)
	return kubeconfigVersion(version, t), err
}

// TalosconfigVersion is the Version that Talosconfig would return, without the work of reading what the Secret holds.
func (s *Store) TalosconfigVersion(ctx context.Context, t target.Target) (string, error) {
	_, version, err := s.read(ctx, t.Namespace, t.TalosconfigSecret, TalosconfigKey)
	return talosconfigVersion(version, t), err
}

func kubeconfigVersion(secret string, t target.Target) string {
	return fmt.Sprintf("%s/%s/%t", t.KubeconfigSecret, secret, t.AllowInsecure)
}

func talosconfigVersion(secret string, t target.Target) string {
	return t.TalosconfigSecret + "/" + secret + "/" + t.TalosconfigContext
}

func (s *Store) read(ctx context.Context, namespace, name, key string) ([]byte, string, error) {
	secret := &corev1.Secret{}
	err := s.Reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, "", fmt.Errorf("secret %s/%s is %w, or not labelled %s", namespace, name, ErrMissing, clusterv1.ClusterNameLabel)
	case err != nil:
		return nil, "", fmt.Errorf("reading secret %s/%s: %w", namespace, name, err)
	}
	data, ok := secret.Data[key]
	if !ok || len(data) == 0 {
		return nil, "", fmt.Errorf("key %q of secret %s/%s is %w", key, namespace, name, ErrMissing)
	}
	return data, secret.ResourceVersion, nil
}
