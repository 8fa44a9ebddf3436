// SPDX-License-Identifier: Apache-2.0

package keyrotation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/target"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;create;update

// keeper keeps keys in Secrets beside the operation.
type keeper struct {
	client client.Client

	// live reads uncached: what a key is, no cache may be behind about.
	live client.Reader
}

// keys are what an operation keeps from before its first pass on.
type keys struct {
	// serviceAccount is the new private key, in PEM; empty if it is not rotated.
	serviceAccount string

	// oldIssuers are the public keys, in PEM, that API servers signed with before.
	oldIssuers []string

	// oldIssuer is the private key, in PEM, that they sign with again if the rotation is turned back.
	oldIssuer string

	// oldToken is a token that the old key has signed; empty as long as there is none.
	oldToken string

	// newToken is a token that the new key has signed; empty as long as there is none.
	newToken string

	// secretbox is the new key that encrypts; empty if it is not rotated.
	secretbox machineconfig.EncryptionKey

	// made is when they were made.
	made time.Time
}

// Keys of the Secret.
const (
	serviceAccountData = "service-account.key"
	oldIssuersData     = "old-service-account.pub"
	oldIssuerData      = "old-service-account.key"
	oldTokenData       = "old-token"
	newTokenData       = "new-token"
	secretboxNameData  = "secretbox.name"
	secretboxData      = "secretbox.secret"
)

// nameOf is the Secret of an operation. One of the same name that comes later has another.
func nameOf(scope kind.Scope) string { return kind.SnapshotName(scope) + "-keys" }

func keyOf(scope kind.Scope) client.ObjectKey {
	return client.ObjectKey{Namespace: scope.Cluster.Namespace, Name: nameOf(scope)}
}

// load reads what is kept; nothing is kept before the first pass.
func (k keeper) load(ctx context.Context, scope kind.Scope) (kept keys, found bool, err error) {
	secret := &corev1.Secret{}
	switch err := k.live.Get(ctx, keyOf(scope), secret); {
	case apierrors.IsNotFound(err):
		return keys{}, false, nil
	case err != nil:
		return keys{}, false, fmt.Errorf("reading the keys in Secret %s: %w", nameOf(scope), err)
	}
	kept = keys{
		serviceAccount: string(secret.Data[serviceAccountData]), oldToken: string(secret.Data[oldTokenData]),
		oldIssuers: parted(string(secret.Data[oldIssuersData])), oldIssuer: string(secret.Data[oldIssuerData]),
		newToken: string(secret.Data[newTokenData]), made: secret.CreationTimestamp.UTC(),
	}
	if name := string(secret.Data[secretboxNameData]); name != "" {
		kept.secretbox = machineconfig.EncryptionKey{Provider: machineconfig.SecretboxProvider, Name: name, Secret: string(secret.Data[secretboxData])}
	}
	return kept, true, nil
}

// pemEnd ends a key in PEM.
const pemEnd = "-----END "

// parted are the keys of a text that has one behind the other.
func parted(text string) []string {
	var list []string
	var current strings.Builder
	for line := range strings.Lines(text) {
		current.WriteString(line)
		if strings.HasPrefix(line, pemEnd) {
			list = append(list, current.String())
			current.Reset()
		}
	}
	return list
}

// need is load for who cannot do without.
func (k keeper) need(ctx context.Context, scope kind.Scope) (keys, error) {
	kept, found, err := k.load(ctx, scope)
	if err == nil && !found {
		err = gone(scope)
	}
	return kept, err
}

// gone says that the keys are, and how another operation gets the cluster, which makes others.
func gone(scope kind.Scope) error {
	return finding("Secret %s with the new keys is gone: leave this operation with: ichor operation delete %s --force --reason TEXT; "+
		"then create another, which makes new ones", nameOf(scope), operationName(scope))
}

// keep makes the Secret with the new keys. One that is there already stays: these keys may be on machines.
func (k keeper) keep(ctx context.Context, scope kind.Scope, made keys) error {
	owner, err := k.operation(ctx, scope)
	if err != nil {
		return err
	}
	data := map[string][]byte{}
	for name, value := range map[string]string{
		serviceAccountData: made.serviceAccount, oldIssuersData: strings.Join(made.oldIssuers, ""), oldIssuerData: made.oldIssuer,
		secretboxNameData: made.secretbox.Name, secretboxData: made.secretbox.Secret,
	} {
		if value != "" {
			data[name] = []byte(value)
		}
	}
	return k.create(ctx, scope, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: scope.Cluster.Namespace, Name: nameOf(scope), Labels: map[string]string{clusterv1.ClusterNameLabel: scope.Cluster.Name},
			OwnerReferences: []metav1.OwnerReference{owner},
		},
		Type: clusterv1.ClusterSecretType, Data: data,
	})
}

// operation is the owner of what is kept for an operation: it goes with it.
func (k keeper) operation(ctx context.Context, scope kind.Scope) (metav1.OwnerReference, error) {
	_, name, _ := strings.Cut(scope.Owner, "/")
	op := &v1alpha1.TalosOperation{}
	if err := k.live.Get(ctx, client.ObjectKey{Namespace: scope.Cluster.Namespace, Name: name}, op); err != nil {
		return metav1.OwnerReference{}, fmt.Errorf("reading TalosOperation %s: %w", name, err)
	}
	return metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TalosOperation", Name: op.Name, UID: op.UID}, nil
}

// create makes a Secret that is there once and for all.
func (k keeper) create(ctx context.Context, scope kind.Scope, secret *corev1.Secret) error {
	if err := guard.Check(guard.With(ctx, scope.Guard), "creating Secret "+secret.Name); err != nil {
		return err
	}
	if err := k.client.Create(ctx, secret); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating Secret %s: %w", secret.Name, err)
	}
	return nil
}

// keepToken keeps a token under a name, unless one is kept.
func (k keeper) keepToken(ctx context.Context, scope kind.Scope, name, token string) error {
	secret := &corev1.Secret{}
	if err := k.live.Get(ctx, keyOf(scope), secret); err != nil {
		return fmt.Errorf("reading Secret %s: %w", nameOf(scope), err)
	}
	if len(secret.Data[name]) > 0 {
		return nil
	}
	if err := guard.Check(guard.With(ctx, scope.Guard), "changing Secret "+secret.Name); err != nil {
		return err
	}
	secret.Data[name] = []byte(token)
	if err := k.client.Update(ctx, secret); err != nil {
		return fmt.Errorf("changing Secret %s: %w", secret.Name, err)
	}
	return nil
}

// oldKey is a key that goes, and that snapshots of etcd need.
type oldKey struct {
	// provider is how it encrypts, or ServiceAccount.
	provider, fingerprint string

	data map[string]string
}

// Keys of the Secret of an old key.
const (
	providerData = "provider"
	nameData     = "name"
	secretData   = "secret"
	keyData      = "key"
)

// oldKeyName is the Secret of an old key.
func oldKeyName(cluster target.Target, fingerprint string) string {
	return fmt.Sprintf("%s-old-key-%s", cluster.Name, fingerprint[:16])
}

// keepOld keeps an old key, for as long as the cluster is managed or, later, for as long as a snapshot needs it.
func (k keeper) keepOld(ctx context.Context, scope kind.Scope, old oldKey) error {
	cluster := &v1alpha1.TalosCluster{}
	if err := k.live.Get(ctx, scope.Cluster.NamespacedName, cluster); err != nil {
		return fmt.Errorf("reading TalosCluster %s: %w", scope.Cluster.Name, err)
	}
	owner := metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: clusterKind, Name: cluster.Name, UID: cluster.UID}
	name := oldKeyName(scope.Cluster, old.fingerprint)
	if err := k.create(ctx, scope, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: scope.Cluster.Namespace, Name: name,
			Labels:          map[string]string{clusterv1.ClusterNameLabel: scope.Cluster.Name, v1alpha1.OldKeyLabel: old.provider},
			Annotations:     map[string]string{v1alpha1.KeyFingerprintAnnotation: old.fingerprint},
			OwnerReferences: []metav1.OwnerReference{owner},
		},
		Type: clusterv1.ClusterSecretType, StringData: old.data,
	}); err != nil {
		return err
	}
	// An earlier rotation may have given it to snapshots, and newer ones need it since.
	secret := &corev1.Secret{}
	if err := k.live.Get(ctx, client.ObjectKey{Namespace: scope.Cluster.Namespace, Name: name}, secret); err != nil {
		return fmt.Errorf("reading Secret %s: %w", name, err)
	}
	if slices.Contains(secret.OwnerReferences, owner) {
		return nil
	}
	return k.own(ctx, scope, secret, append(secret.OwnerReferences, owner))
}

// clusterKind is the kind of the object that stands for a cluster.
const clusterKind = "TalosCluster"

// own gives a Secret to owners.
func (k keeper) own(ctx context.Context, scope kind.Scope, secret *corev1.Secret, owners []metav1.OwnerReference) error {
	if err := guard.Check(guard.With(ctx, scope.Guard), "changing Secret "+secret.Name); err != nil {
		return err
	}
	secret.OwnerReferences = owners
	if err := k.client.Update(ctx, secret); err != nil {
		return fmt.Errorf("changing Secret %s: %w", secret.Name, err)
	}
	return nil
}

// withRetired adds to public keys those of others, whose tokens are accepted, that this cluster has signed with before: a rotation that nobody
// brought to its end has left them. Keys of other clusters stay accepted.
func (k keeper) withRetired(ctx context.Context, scope kind.Scope, issuers, accepted []string) ([]string, error) {
	if len(accepted) == 0 {
		return issuers, nil
	}
	secrets, err := k.oldKeys(ctx, scope)
	if err != nil {
		return nil, err
	}
	for _, public := range accepted {
		fingerprint, err := machineconfig.KeyFingerprint(public)
		if err != nil {
			return nil, finding("%s", err)
		}
		retired := slices.ContainsFunc(secrets, func(s corev1.Secret) bool {
			return s.Labels[v1alpha1.OldKeyLabel] == string(v1alpha1.ServiceAccountKey) && s.Annotations[v1alpha1.KeyFingerprintAnnotation] == fingerprint
		})
		if retired && !slices.Contains(issuers, public) {
			issuers = append(issuers, public)
		}
	}
	return issuers, nil
}

// oldKeys are the Secrets with the old keys of a cluster.
func (k keeper) oldKeys(ctx context.Context, scope kind.Scope) ([]corev1.Secret, error) {
	list := &corev1.SecretList{}
	if err := k.live.List(ctx, list, client.InNamespace(scope.Cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: scope.Cluster.Name},
		client.HasLabels{v1alpha1.OldKeyLabel}); err != nil {
		return nil, fmt.Errorf("listing Secrets with old keys: %w", err)
	}
	return list.Items, nil
}

// giveOld gives the old keys of a cluster to the snapshots that need them, so that each goes with the last of these. One that no snapshot needs
// stays with the cluster: there may be snapshots that the hub does not know of. So does each while nobody knows which keys a snapshot needs.
func (k keeper) giveOld(ctx context.Context, scope kind.Scope) error {
	snapshots := &v1alpha1.EtcdSnapshotList{}
	if err := k.live.List(ctx, snapshots, client.InNamespace(scope.Cluster.Namespace)); err != nil {
		return fmt.Errorf("listing EtcdSnapshots: %w", err)
	}
	secrets, err := k.oldKeys(ctx, scope)
	if err != nil {
		return err
	}
	unknown := slices.ContainsFunc(snapshots.Items, func(s v1alpha1.EtcdSnapshot) bool {
		return s.Spec.ClusterName == scope.Cluster.Name && s.Spec.Contents == nil
	})
	for i := range secrets {
		secret := &secrets[i]
		owners := ownersOf(snapshots.Items, scope.Cluster.Name, secret.Annotations[v1alpha1.KeyFingerprintAnnotation])
		if len(owners) == 0 {
			continue
		}
		if unknown {
			owners = append(owners, ownersOfKind(secret, clusterKind)...)
		}
		if slices.Equal(owners, secret.OwnerReferences) {
			continue
		}
		if err := k.own(ctx, scope, secret, owners); err != nil {
			return err
		}
	}
	return nil
}

// ownersOfKind are the owners of a Secret of a kind.
func ownersOfKind(secret *corev1.Secret, kind string) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(secret.OwnerReferences), func(owner metav1.OwnerReference) bool { return owner.Kind != kind })
}

// ownersOf are the snapshots of a cluster that need a key.
func ownersOf(snapshots []v1alpha1.EtcdSnapshot, cluster, fingerprint string) []metav1.OwnerReference {
	var owners []metav1.OwnerReference
	for i := range snapshots {
		if s := &snapshots[i]; s.Spec.ClusterName == cluster && needs(s, fingerprint) {
			owners = append(owners, metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EtcdSnapshot", Name: s.Name, UID: s.UID})
		}
	}
	return owners
}

// needs says whether the data of a snapshot is of no use without a key.
func needs(snapshot *v1alpha1.EtcdSnapshot, fingerprint string) bool {
	contents := snapshot.Spec.Contents
	return contents != nil && (contents.Keys.ServiceAccount == fingerprint || slices.ContainsFunc(contents.Keys.Encryption, func(k v1alpha1.SnapshotEncryptionKey) bool {
		return k.Fingerprint == fingerprint
	}))
}
