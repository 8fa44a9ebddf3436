// SPDX-License-Identifier: Apache-2.0

package carotation

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/role"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/target"
)

// Vault keeps what a rotation needs beyond its status, and writes the credentials of the cluster.
type Vault interface {
	// Read reads a Secret as it is now; the error wraps credentials.ErrMissing if there is none.
	Read(ctx context.Context, key types.NamespacedName) (map[string][]byte, error)

	// Create makes a Secret of a cluster, unless there is one of that name.
	Create(ctx context.Context, key types.NamespacedName, cluster string, owner metav1.OwnerReference, data map[string][]byte) error

	// Delete deletes a Secret, if there is one.
	Delete(ctx context.Context, key types.NamespacedName) error

	// HandOver rewrites the credentials of one API of a target.
	HandOver(ctx context.Context, t target.Target, of v1alpha1.CAAuthority, h credentials.Handover) error

	// HandOverAuthority replaces an authority in what new machines and new credentials are made from. Where nobody keeps a bundle, one is made of a
	// machine config of a control plane, if there is one given.
	HandOverAuthority(ctx context.Context, t target.Target, of v1alpha1.CAAuthority, authority credentials.KeyPair, config []byte) error
}

// Material is what a rotation keeps of one authority from before the first pass until it is over.
type Material struct {
	// Old and New are the authorities.
	Old, New credentials.KeyPair

	// OldClient is the client certificate that the cluster's credentials had, empty where they have a token. NewClient is its successor.
	OldClient, NewClient credentials.KeyPair

	// OldProof is a client certificate of the old authority for the same user, made when the rotation began: that of the credentials may end while
	// people are waited for, and an old one that has ended is refused by everybody. It proves who accepts the old authority; NewClient proves who
	// accepts the new one.
	OldProof credentials.KeyPair
}

// known are both authorities.
func (m Material) known() [][]byte { return [][]byte{m.Old.Certificate, m.New.Certificate} }

// parts are the pieces of a Material by the keys of the Secret.
func (m *Material) parts() map[string]*credentials.KeyPair {
	return map[string]*credentials.KeyPair{"old": &m.Old, "new": &m.New, "old-client": &m.OldClient, "new-client": &m.NewClient, "old-proof": &m.OldProof}
}

// store writes a Material into the data of a Secret.
func (m Material) store(of v1alpha1.CAAuthority, data map[string][]byte) {
	for name, pair := range m.parts() {
		if pair.Empty() {
			continue
		}
		data[dataKey(of, name, "crt")], data[dataKey(of, name, "key")] = pair.Certificate, pair.Key
	}
}

func dataKey(of v1alpha1.CAAuthority, name, what string) string {
	return strings.ToLower(string(of)) + "-" + name + "." + what
}

// materialOf reads what is kept of an authority.
func materialOf(of v1alpha1.CAAuthority, data map[string][]byte) (Material, error) {
	var m Material
	for name, pair := range m.parts() {
		pair.Certificate, pair.Key = data[dataKey(of, name, "crt")], data[dataKey(of, name, "key")]
	}
	if m.Old.Empty() || m.New.Empty() || m.NewClient.Empty() || m.OldProof.Empty() {
		return Material{}, fmt.Errorf("it lacks a certificate of authority %s", of)
	}
	return m, nil
}

// secretKey is the Secret with what an operation keeps. Names of operations are used again; their identities are not.
func secretKey(scope kind.Scope) types.NamespacedName {
	return types.NamespacedName{Namespace: scope.Cluster.Namespace, Name: "ca-rotation-" + scope.OperationID}
}

// errLost means that what a rotation keeps is gone.
var errLost = errors.New("what the rotation keeps is gone")

// material reads what the operation keeps of an authority.
func (e *Executor) material(ctx context.Context, scope kind.Scope, of v1alpha1.CAAuthority) (Material, error) {
	data, err := e.vault.Read(ctx, secretKey(scope))
	if errors.Is(err, credentials.ErrMissing) {
		return Material{}, fmt.Errorf("%w: secret %s is not there; restore it from a backup", errLost, secretKey(scope).Name)
	}
	if err != nil {
		return Material{}, err
	}
	found, err := materialOf(of, data)
	if err != nil {
		return Material{}, fmt.Errorf("%w: secret %s: %w", errLost, secretKey(scope).Name, err)
	}
	return found, nil
}

// prover is whom a certificate names that proves servers and is nobody's credential.
const prover = "ichor-hub"

// proverRoles are what it takes to be told who a machine is. Every API server tells its version to whomever it accepts.
var proverRoles = map[v1alpha1.CAAuthority][]string{v1alpha1.TalosCA: {string(role.Admin)}}

// makeMaterial makes a new authority beside an old one, and the successor of a client certificate that the old one has signed.
func makeMaterial(of v1alpha1.CAAuthority, old, client credentials.KeyPair, now time.Time) (Material, error) {
	m := Material{Old: old}
	var err error
	if m.New, err = credentials.NewAuthority(of, now); err != nil {
		return Material{}, err
	}
	user := pkix.Name{CommonName: prover, Organization: proverRoles[of]}
	if credentials.SignedBy(client.Certificate, old.Certificate) {
		m.OldClient = client
		if user, err = credentials.Subject(client.Certificate); err != nil {
			return Material{}, err
		}
	}
	if m.NewClient, err = m.New.Client(user, now); err != nil {
		return Material{}, err
	}
	m.OldProof, err = old.Client(user, now)
	return m, err
}

// oldClient is what credentials go back to: the client certificate that they had, or its successor by the same authority if it has ended.
func (m Material) oldClient(now time.Time) credentials.KeyPair {
	if credentials.Ended(m.OldClient.Certificate, now) {
		return m.OldProof
	}
	return m.OldClient
}

// handover is what becomes of credentials that trust what is said.
func (m Material) handover(trust string, now time.Time) credentials.Handover {
	h := credentials.Handover{Known: m.known()}
	switch trust {
	case trustBoth:
		h.Trust, h.Client = m.known(), m.oldClient(now)
	case trustNew:
		h.Trust, h.Client = [][]byte{m.New.Certificate}, m.NewClient
	case trustOld:
		h.Trust, h.Client = [][]byte{m.Old.Certificate}, m.oldClient(now)
	}
	return h
}

// What credentials trust, and by whom their client certificate is signed.
const (
	trustBoth = "both" // The old one signs still.
	trustNew  = "new"
	trustOld  = "old"
)

// authoritiesOf are the authorities that the operation rotates, in order.
func authoritiesOf(scope kind.Scope) []v1alpha1.CAAuthority {
	if scope.Spec.CARotation == nil {
		return nil
	}
	return slices.Clone(scope.Spec.CARotation.Authorities)
}
