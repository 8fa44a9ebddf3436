// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/target"
)

// Keeper writes the Secrets with the credentials of targets, and those with what a rotation keeps. Like a change of a target, a write asks
// the guard of its context.
type Keeper struct {
	// Client writes.
	Client client.Client

	// Live reads uncached: what is written over has to be what is there.
	Live client.Reader
}

// HandOver rewrites the credentials of one API of a target: its talosconfig, or its kubeconfig. Whoever made the Secret, its labels, its owner and
// whatever else is in it stay.
func (k *Keeper) HandOver(ctx context.Context, t target.Target, of v1alpha1.CAAuthority, h Handover) error {
	name, key, rewrite := t.KubeconfigSecret, KubeconfigKey, h.Kubeconfig
	if of == v1alpha1.TalosCA {
		name, key, rewrite = t.TalosconfigSecret, TalosconfigKey, func(data []byte) ([]byte, error) { return h.Talosconfig(data, t) }
	}
	return k.change(ctx, types.NamespacedName{Namespace: t.Namespace, Name: name}, func(data map[string][]byte) error {
		made, err := rewrite(data[key])
		if err != nil {
			return fmt.Errorf("secret %s/%s, key %q: %w", t.Namespace, name, key, err)
		}
		data[key] = made
		return nil
	})
}

// change changes the data of a Secret as it is now, if anything changes.
func (k *Keeper) change(ctx context.Context, key types.NamespacedName, change func(map[string][]byte) error) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		secret := &corev1.Secret{}
		switch err := k.Live.Get(ctx, key, secret); {
		case apierrors.IsNotFound(err):
			return fmt.Errorf("secret %s is %w", key, ErrMissing)
		case err != nil:
			return fmt.Errorf("reading secret %s: %w", key, err)
		}
		before := maps.Clone(secret.Data)
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		if err := change(secret.Data); err != nil || sameData(before, secret.Data) {
			return err
		}
		if err := guard.Check(ctx, "writing secret "+key.String()); err != nil {
			return err
		}
		return k.Client.Update(ctx, secret) // A conflict is told as it is, and tried again.
	})
}

func sameData(a, b map[string][]byte) bool {
	return maps.EqualFunc(a, b, bytes.Equal)
}

// Read reads the data of a Secret as it is now. The error wraps ErrMissing if there is none.
func (k *Keeper) Read(ctx context.Context, key types.NamespacedName) (map[string][]byte, error) {
	secret := &corev1.Secret{}
	switch err := k.Live.Get(ctx, key, secret); {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("secret %s is %w", key, ErrMissing)
	case err != nil:
		return nil, fmt.Errorf("reading secret %s: %w", key, err)
	}
	return secret.Data, nil
}

// Create makes a Secret of a cluster, unless there is one of that name, whose data then stays.
func (k *Keeper) Create(ctx context.Context, key types.NamespacedName, cluster string, owner metav1.OwnerReference, data map[string][]byte) error {
	if err := guard.Check(ctx, "creating secret "+key.String()); err != nil {
		return err
	}
	err := k.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}, OwnerReferences: []metav1.OwnerReference{owner},
		},
		Type: clusterv1.ClusterSecretType, Data: data,
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating secret %s: %w", key, err)
	}
	return nil
}

// Delete deletes a Secret, if there is one.
func (k *Keeper) Delete(ctx context.Context, key types.NamespacedName) error {
	if err := guard.Check(ctx, "deleting secret "+key.String()); err != nil {
		return err
	}
	err := k.Client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting secret %s: %w", key, err)
	}
	return nil
}

// Keys of Secrets of type TLS, which Cluster API keeps authorities in.
const (
	authorityCertificateKey = corev1.TLSCertKey
	authorityKeyKey         = corev1.TLSPrivateKeyKey
)

// KubernetesAuthoritySecretName is the name under which Cluster API keeps the authority of the Kubernetes API of a cluster.
func KubernetesAuthoritySecretName(cluster string) string { return cluster + "-ca" }

// ReplaceKubernetesAuthority replaces the authority of the Kubernetes API that Cluster API keeps, where it keeps one: it signs kubeconfigs by it.
func (k *Keeper) ReplaceKubernetesAuthority(ctx context.Context, cluster types.NamespacedName, authority KeyPair) error {
	key := types.NamespacedName{Namespace: cluster.Namespace, Name: KubernetesAuthoritySecretName(cluster.Name)}
	err := k.change(ctx, key, func(data map[string][]byte) error {
		data[authorityCertificateKey], data[authorityKeyKey] = authority.Certificate, authority.Key
		return nil
	})
	if errors.Is(err, ErrMissing) {
		return nil
	}
	return err
}

// MarkBundleChanged writes down on the TalosCluster that its bundle of secrets is not what was exported last. It is done before the bundle is
// changed and after it: who sees the first mark too early exports once more than needed.
func MarkBundleChanged(ctx context.Context, c client.Client, cluster types.NamespacedName, now time.Time) error {
	found := &v1alpha1.TalosCluster{}
	if err := c.Get(ctx, cluster, found); err != nil {
		return fmt.Errorf("reading TalosCluster %s: %w", cluster, err)
	}
	if err := guard.Check(ctx, "annotating TalosCluster "+cluster.String()); err != nil {
		return err
	}
	before := found.DeepCopy()
	metav1.SetMetaDataAnnotation(&found.ObjectMeta, v1alpha1.BundleChangedAnnotation, now.UTC().Format(time.RFC3339Nano))
	if err := c.Patch(ctx, found, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("annotating TalosCluster %s: %w", cluster, err)
	}
	return nil
}
