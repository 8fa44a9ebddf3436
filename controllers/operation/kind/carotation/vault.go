// SPDX-License-Identifier: Apache-2.0

package carotation

import (
	"context"
	"errors"
	"fmt"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/providers/target"
)

// Secrets is the Vault of real Secrets.
type Secrets struct{ *credentials.Keeper }

// HandOverAuthority implements Vault. A cluster of which nobody keeps a bundle gets one: from then on new machines, and the backup of people,
// come from there.
func (s Secrets) HandOverAuthority(ctx context.Context, t target.Target, of v1alpha1.CAAuthority, authority credentials.KeyPair, config []byte) error {
	change := func(bundle *secrets.Bundle) error { return replaceAuthority(bundle, of, authority) }
	err := s.ReplaceBundle(ctx, t.NamespacedName, change)
	if errors.Is(err, credentials.ErrMissing) {
		if err = nil; len(config) > 0 {
			err = s.makeBundle(ctx, t, config, change)
		}
	}
	if err != nil || of != v1alpha1.KubernetesCA {
		return err
	}
	return s.ReplaceKubernetesAuthority(ctx, t.NamespacedName, authority)
}

// makeBundle keeps a bundle of what a control plane has.
func (s Secrets) makeBundle(ctx context.Context, t target.Target, config []byte, change func(*secrets.Bundle) error) error {
	provider, err := machineconfig.Load(config)
	if err != nil {
		return &renderError{err}
	}
	bundle, err := secrets.NewBundleFromConfig(secrets.NewClock(), provider)
	if err != nil {
		return &renderError{errors.New("the secrets in the machine config of a control plane cannot be read")}
	}
	if err := change(bundle); err != nil {
		return err
	}
	cluster := &v1alpha1.TalosCluster{}
	if err := s.Live.Get(ctx, t.NamespacedName, cluster); err != nil {
		return fmt.Errorf("reading TalosCluster %s: %w", t, err)
	}
	owner := metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TalosCluster", Name: cluster.Name, UID: cluster.UID}
	return s.CreateBundle(ctx, t.NamespacedName, owner, bundle)
}

// replaceAuthority replaces an authority of a bundle.
func replaceAuthority(bundle *secrets.Bundle, of v1alpha1.CAAuthority, authority credentials.KeyPair) error {
	if bundle.Certs == nil {
		return &renderError{errors.New("the bundle of the cluster's secrets has no certificates")}
	}
	pair := &x509.PEMEncodedCertificateAndKey{Crt: authority.Certificate, Key: authority.Key}
	if of == v1alpha1.TalosCA {
		bundle.Certs.OS = pair
	} else {
		bundle.Certs.K8s = pair
	}
	return nil
}

// authorityOf is the certificate of an authority in a bundle; nothing if there is none.
func authorityOf(bundle *secrets.Bundle, of v1alpha1.CAAuthority) []byte {
	if bundle.Certs == nil {
		return nil
	}
	pair := bundle.Certs.K8s
	if of == v1alpha1.TalosCA {
		pair = bundle.Certs.OS
	}
	if pair == nil {
		return nil
	}
	return pair.Crt
}

// Servers is the Prover of real servers.
type Servers struct {
	TalosPool *talos.Pool
	KubePool  *kube.Pool
}

// Talos implements Prover.
func (s Servers) Talos(ctx context.Context, t target.Target, address string, as credentials.Direct) (talos.Machine, error) {
	return s.TalosPool.Direct(ctx, t, address, as)
}

// Kubernetes implements Prover.
func (s Servers) Kubernetes(ctx context.Context, t target.Target, address string, as credentials.Direct) (string, error) {
	return s.KubePool.Direct(ctx, t, address, as)
}
