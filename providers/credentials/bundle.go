// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"go.yaml.in/yaml/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Keys of the Secret with the bundle of a cluster's secrets, as Cluster API's bootstrap provider for Talos names them. Older versions of it keep
// the parts under keys of their own.
const (
	BundleKey = "bundle"

	oldCertsKey      = "certs"
	oldSecretsKey    = "kubeSecrets"
	oldTrustdInfoKey = "trustdInfo"
)

// BundleSecretName is the name of the Secret with the bundle of a cluster's secrets, from which new machines are made.
func BundleSecretName(cluster string) string { return cluster + "-talos" }

func bundleKey(cluster types.NamespacedName) types.NamespacedName {
	return types.NamespacedName{Namespace: cluster.Namespace, Name: BundleSecretName(cluster.Name)}
}

// ReplaceBundle changes the bundle of a cluster's secrets, and writes down on its TalosCluster that a backup of it is stale. It asks the guard
// of ctx. The error wraps ErrMissing if no bundle is kept. A change that changes nothing is none.
func ReplaceBundle(ctx context.Context, c client.Client, cluster types.NamespacedName, change func(*secrets.Bundle) error) error {
	return (&Keeper{Client: c, Live: c}).ReplaceBundle(ctx, cluster, change)
}

// ReplaceBundle is ReplaceBundle of the package, and reads past the cache. It is written down before the bundle is changed, so that no end of this
// process keeps it secret, and once more afterwards: who has exported in between has the bundle of before.
func (k *Keeper) ReplaceBundle(ctx context.Context, cluster types.NamespacedName, change func(*secrets.Bundle) error) error {
	changed := false
	err := k.change(ctx, bundleKey(cluster), func(data map[string][]byte) error {
		changed = false
		bundle, err := ParseBundle(data)
		if err != nil {
			return fmt.Errorf("secret %s: %w", bundleKey(cluster), err)
		}
		before, err := EncodeBundle(bundle)
		if err != nil {
			return err
		}
		if err := change(bundle); err != nil {
			return err
		}
		after, err := EncodeBundle(bundle)
		if err != nil || bytes.Equal(after, before) {
			return err
		}
		if err := MarkBundleChanged(ctx, k.Client, cluster, time.Now()); err != nil {
			return err
		}
		changed = true
		return putBundle(data, bundle)
	})
	if err != nil || !changed {
		return err
	}
	return MarkBundleChanged(ctx, k.Client, cluster, time.Now())
}

// CreateBundle keeps a bundle of a cluster's secrets that has none.
func (k *Keeper) CreateBundle(ctx context.Context, cluster types.NamespacedName, owner metav1.OwnerReference, bundle *secrets.Bundle) error {
	data := map[string][]byte{}
	if err := putBundle(data, bundle); err != nil {
		return err
	}
	if err := MarkBundleChanged(ctx, k.Client, cluster, time.Now()); err != nil {
		return err
	}
	return k.Create(ctx, bundleKey(cluster), cluster.Name, owner, data)
}

// ParseBundle reads a bundle in either form.
func ParseBundle(data map[string][]byte) (*secrets.Bundle, error) {
	bundle := &secrets.Bundle{Clock: secrets.NewClock()}
	if whole, ok := data[BundleKey]; ok {
		if err := decode(BundleKey, whole, bundle); err != nil {
			return nil, err
		}
		return bundle, nil
	}
	if len(data[oldCertsKey]) == 0 {
		return nil, fmt.Errorf("key %q is %w", BundleKey, ErrMissing)
	}
	for key, into := range map[string]any{oldCertsKey: &bundle.Certs, oldSecretsKey: &bundle.Secrets, oldTrustdInfoKey: &bundle.TrustdInfo} {
		if err := decode(key, data[key], into); err != nil {
			return nil, err
		}
	}
	return bundle, nil
}

// decode reads YAML. The error does not repeat what was read: it is secret.
func decode(key string, data []byte, into any) (err error) {
	failed := fmt.Errorf("key %q is %w: it is no bundle of secrets", key, ErrInvalid)
	defer func() {
		if recover() != nil { // What the library makes of broken input is its own affair.
			err = failed
		}
	}()
	if len(data) == 0 || yaml.Unmarshal(data, into) != nil {
		return failed
	}
	return nil
}

// putBundle writes a bundle in the form that it has.
func putBundle(data map[string][]byte, bundle *secrets.Bundle) error {
	parts := map[string]any{BundleKey: bundle}
	if len(data[BundleKey]) == 0 && len(data[oldCertsKey]) > 0 {
		parts = map[string]any{oldCertsKey: bundle.Certs, oldSecretsKey: bundle.Secrets, oldTrustdInfoKey: bundle.TrustdInfo}
	}
	for key, part := range parts {
		encoded, err := yaml.Marshal(part)
		if err != nil {
			return errors.New("the bundle of secrets cannot be written")
		}
		data[key] = encoded
	}
	return nil
}

// EncodeBundle is a bundle as talosctl reads it: talosctl gen config --with-secrets.
func EncodeBundle(bundle *secrets.Bundle) ([]byte, error) {
	encoded, err := yaml.Marshal(bundle)
	if err != nil {
		return nil, errors.New("the bundle of secrets cannot be written")
	}
	return encoded, nil
}
