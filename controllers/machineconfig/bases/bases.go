// SPDX-License-Identifier: Apache-2.0

// Package bases keeps the base configs of machines, and holds against them what machines have.
//
// The base of a machine is what its config was when the hub first saw it. It is a Secret that belongs to the TalosMachine, is made once, and
// is never written over: who wants another base replaces it.
package bases

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

const (
	// Key is where a Secret has the base.
	Key = "machineconfig"

	// Base is the value of the label on such Secrets.
	Base = "base"

	// suffix follows the name of the TalosMachine in the name of its Secret.
	suffix = "-machine-config"
)

// SecretName is the name of the Secret with the base of a machine.
func SecretName(machine string) string { return machine + suffix }

// ErrNone means that a machine has no base yet.
var ErrNone = errors.New("its base config is not stored yet")

// Store reads and makes the Secrets.
type Store struct {
	// Client writes, and reads from a cache that need not hold what is in the Secrets; see Lighten.
	Client client.Client

	// Live reads uncached.
	Live client.Reader
}

// version tells states of a Secret apart.
type version string

// version of the base of a machine, as the cache has it; ErrNone if it has none, which may be too early to say.
func (s *Store) version(ctx context.Context, machine *v1alpha1.TalosMachine) (version, error) {
	secret := &corev1.Secret{}
	switch err := s.Client.Get(ctx, key(machine), secret); {
	case apierrors.IsNotFound(err):
		return "", ErrNone
	case err != nil:
		return "", fmt.Errorf("reading Secret %s: %w", key(machine), err)
	}
	return versionOf(secret), nil
}

func versionOf(secret *corev1.Secret) version {
	return version(string(secret.UID) + "/" + secret.ResourceVersion)
}

// read reads the base of a machine.
func (s *Store) read(ctx context.Context, machine *v1alpha1.TalosMachine) ([]byte, version, error) {
	secret := &corev1.Secret{}
	switch err := s.Live.Get(ctx, key(machine), secret); {
	case apierrors.IsNotFound(err):
		return nil, "", ErrNone
	case err != nil:
		return nil, "", fmt.Errorf("reading Secret %s: %w", key(machine), err)
	}
	base, ok := secret.Data[Key]
	if !ok || len(base) == 0 {
		return nil, "", fmt.Errorf("Secret %s has no machine config under key %q", key(machine).Name, Key) //nolint:staticcheck // A kind.
	}
	return base, versionOf(secret), nil
}

// Read reads the base of a machine; ErrNone if it has none.
func (s *Store) Read(ctx context.Context, machine *v1alpha1.TalosMachine) ([]byte, error) {
	base, _, err := s.read(ctx, machine)
	return base, err
}

// Keep stores the base of a machine, unless there is one.
func (s *Store) Keep(ctx context.Context, machine *v1alpha1.TalosMachine, base []byte) error {
	err := s.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: machine.Namespace, Name: SecretName(machine.Name),
			Labels: map[string]string{clusterv1.ClusterNameLabel: machine.Spec.ClusterName, v1alpha1.MachineConfigLabel: Base},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "TalosMachine", Name: machine.Name, UID: machine.UID,
			}},
		},
		Type: clusterv1.ClusterSecretType, Data: map[string][]byte{Key: base},
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating Secret %s: %w", key(machine), err)
	}
	return nil
}

func key(machine *v1alpha1.TalosMachine) client.ObjectKey {
	return client.ObjectKey{Namespace: machine.Namespace, Name: SecretName(machine.Name)}
}

// Is says whether an object is the Secret of a base.
func Is(object client.Object) bool { return object.GetLabels()[v1alpha1.MachineConfigLabel] == Base }

// Lighten takes the config out of a Secret that is about to be cached: thousands of them would be megabytes, and are seldom read.
func Lighten(object any) (any, error) {
	if secret, ok := object.(*corev1.Secret); ok && Is(secret) {
		secret.Data = nil
	}
	return object, nil
}
