// SPDX-License-Identifier: Apache-2.0

package keyrotation

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/kube"
	kubefake "ichor.maesh.dev/hub/providers/kube/fake"
	"ichor.maesh.dev/hub/providers/talos"
	talosfake "ichor.maesh.dev/hub/providers/talos/fake"
	"ichor.maesh.dev/hub/providers/target"
)

var bundle = sync.OnceValue(func() *secrets.Bundle {
	made, err := secrets.NewBundle(secrets.NewClock(), talosconfig.TalosVersionCurrent, secrets.WithECDSAServiceAccountKey())
	if err != nil {
		panic(err)
	}
	return made
})

// encryptionKind is the document that says how Secrets are encrypted.
const encryptionKind = "kind: KubeEtcdEncryptionConfig"

// machineConfig is the config of a control plane, as Talos generates it.
func machineConfig(t *testing.T) []byte {
	t.Helper()
	g := NewWithT(t)
	contract, err := talosconfig.ParseContractFromVersion("v1.14.1")
	g.Expect(err).NotTo(HaveOccurred())
	input, err := generate.NewInput("c1", "https://10.0.0.1:6443", "1.35.1", generate.WithVersionContract(contract), generate.WithSecretsBundle(bundle()))
	g.Expect(err).NotTo(HaveOccurred())
	made, err := input.Config(machine.TypeControlPlane)
	g.Expect(err).NotTo(HaveOccurred())
	data, err := made.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	g.Expect(err).NotTo(HaveOccurred())
	return data
}

// unencrypted is a config without anything that encrypts.
func unencrypted(g Gomega, config []byte) []byte {
	var left []string
	for document := range strings.SplitSeq(string(config), "---\n") {
		if !strings.Contains(document, encryptionKind) {
			left = append(left, document)
		}
	}
	made := []byte(strings.Join(left, "---\n"))
	_, err := machineconfig.EncryptionOf(made)
	g.Expect(err).To(HaveOccurred())
	return made
}

// world is a cluster of two control planes, with fakes in place of its APIs and of the management cluster.
type world struct {
	*Executor

	machines *talosfake.Talos
	api      *kubefake.Kube
	admin    client.Client
	scope    kind.Scope
	bundles  []*secrets.Bundle
}

func newWorld(t *testing.T, config []byte, keys ...v1alpha1.RotatedKey) *world {
	t.Helper()
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	g.Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	w := &world{machines: talosfake.New(), api: kubefake.New(), scope: scopeOf(keys...)}
	w.scope.Cluster = target.Target{NamespacedName: types.NamespacedName{Namespace: "default", Name: "c1"}}
	w.scope.Guard = func(context.Context) error { return nil }
	w.admin = fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "keys-1", UID: "o1"}},
		&v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1", UID: "t1"}},
	).Build()
	for _, name := range []string{"cp-1", "cp-2"} {
		m := unitOf("", "").Machine
		m.Name, m.Spec.Address, m.Status.NodeName = "c1-"+name, "at-"+name, name
		w.scope.Approved = append(w.scope.Approved, m)
		w.machines.Add(m.Spec.Address, talos.Machine{UUID: m.Spec.UUID, NodeName: name}, nil)
	}
	w.configure(g, config)
	w.Executor = New(Options{
		Talos: w.machines, Kube: w.api, Client: w.admin, Live: w.admin,
		Bundles: func(_ context.Context, _ target.Target, change func(*secrets.Bundle) error) error {
			made := *bundle()
			certs, own := *made.Certs, *made.Secrets
			made.Certs, made.Secrets = &certs, &own
			w.bundles = append(w.bundles, &made)
			return change(&made)
		},
	})
	return w
}

// configure puts a config in force on every control plane, whose API server reads it.
func (w *world) configure(g Gomega, config []byte) {
	account, err := machineconfig.ServiceAccountOf(config)
	g.Expect(err).NotTo(HaveOccurred())
	ids, err := account.KeyIDs()
	g.Expect(err).NotTo(HaveOccurred())
	for _, m := range w.scope.Approved {
		w.machines.Configure(m.Spec.Address, talos.Config{Active: config, Persistent: config})
		w.api.SetServer(m.Spec.Address, ids...)
	}
}

// in is cp-1 in a stage.
func (w *world) in(stage string) kind.Unit {
	u := unitOf(stage, "")
	u.Machine = w.scope.Approved[0]
	return u
}

// A service account alone is rotated where nothing is encrypted.
func TestBundleWithoutEncryption(t *testing.T) {
	g := NewWithT(t)
	config := unencrypted(g, machineConfig(t))
	w := newWorld(t, config, v1alpha1.ServiceAccountKey)
	_, err := w.generate(t.Context(), w.scope)
	g.Expect(err).NotTo(HaveOccurred())
	kept, _, err := w.keeper.load(t.Context(), w.scope)
	g.Expect(err).NotTo(HaveOccurred())
	config, err = wanted(w.scope.Spec, "SwapServiceAccount", config, kept, "")
	g.Expect(err).NotTo(HaveOccurred())
	w.configure(g, config)
	_, err = w.renew(t.Context(), w.scope)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.bundles).To(HaveLen(1))
	g.Expect(string(w.bundles[0].Certs.K8sServiceAccount.Key)).To(Equal(kept.serviceAccount))
	g.Expect(w.bundles[0].Secrets).To(Equal(bundle().Secrets))
}

// An operation that is turned back before it has made keys has nothing to bring up to date. Any other one needs them.
func TestBundleWithoutKeys(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t, machineConfig(t), v1alpha1.ServiceAccountKey)
	_, err := w.renew(t.Context(), w.scope)
	g.Expect(err).To(MatchError(ContainSubstring("is gone: leave this operation with: ichor operation delete keys-1 --force --reason TEXT; then create another")))
	g.Expect(len(err.Error())).To(BeNumerically("<=", 256))
	w.scope.TurnBack = true
	outcome, err := w.renew(t.Context(), w.scope)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(outcome.Message).To(Equal("nothing was changed"))
	g.Expect(w.bundles).To(BeEmpty())
}

// A rotation that was left between the swap and the drop has left its old key accepted. The next one takes that away as well, and leaves what
// somebody else has put there.
func TestKeysThatARotationHasLeft(t *testing.T) {
	g := NewWithT(t)
	config := machineConfig(t)
	w := newWorld(t, config, v1alpha1.ServiceAccountKey)
	_, err := w.generate(t.Context(), w.scope)
	g.Expect(err).NotTo(HaveOccurred())
	first, _, err := w.keeper.load(t.Context(), w.scope)
	g.Expect(err).NotTo(HaveOccurred())

	other, err := machineconfig.NewServiceAccountKey(first.serviceAccount)
	g.Expect(err).NotTo(HaveOccurred())
	foreign, err := machineconfig.PublicKey(other)
	g.Expect(err).NotTo(HaveOccurred())
	account, err := machineconfig.ServiceAccountOf(config)
	g.Expect(err).NotTo(HaveOccurred())
	account, err = account.Issuing(first.serviceAccount)
	g.Expect(err).NotTo(HaveOccurred())
	account, err = account.Accepting(foreign)
	g.Expect(err).NotTo(HaveOccurred())
	config, err = machineconfig.WithServiceAccount(config, account)
	g.Expect(err).NotTo(HaveOccurred())
	w.configure(g, config)

	w.scope.OperationID = "fedcba9876543210"
	_, err = w.generate(t.Context(), w.scope)
	g.Expect(err).NotTo(HaveOccurred())
	second, _, err := w.keeper.load(t.Context(), w.scope)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(second.serviceAccount).NotTo(Equal(first.serviceAccount))
	config, err = wanted(w.scope.Spec, "DropServiceAccount", config, second, "")
	g.Expect(err).NotTo(HaveOccurred())
	account, err = machineconfig.ServiceAccountOf(config)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(account.Issuer).To(Equal(second.serviceAccount))
	g.Expect(account.Accepted).To(Equal([]string{foreign}))
}

// Tokens that are older than the new key are of the old one, which stays when a rotation is turned back.
func TestTokensOnTheWayBack(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t, machineConfig(t), v1alpha1.ServiceAccountKey)
	made, began := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC), time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC)
	g.Expect(w.admin.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: nameOf(w.scope), CreationTimestamp: metav1.NewTime(made),
	}})).To(Succeed())
	w.api.SetLegacyTokens(kube.LegacyToken{Name: "a/older", Created: made.Add(-time.Second)}, kube.LegacyToken{Name: "a/between", Created: made},
		kube.LegacyToken{Name: "a/newer", Created: began})
	look := func(stage string) []string {
		unit := whole(stage, v1alpha1.RefreshingStep, func(u *kind.Unit) {
			u.Status.Steps = []v1alpha1.StepRecord{{Step: v1alpha1.RefreshingStep, Stage: stage, StartTime: metav1.NewTime(began)}}
		})
		return w.lookAtTokens(t.Context(), w.scope, unit).legacy
	}
	g.Expect(look("RefreshTokens")).To(Equal([]string{"a/older", "a/between"}))
	g.Expect(look("BackRefreshTokens")).To(Equal([]string{"a/between"}))
}

// An old key stays with the cluster as long as nobody knows whether a snapshot needs it, and comes back to it where it is an old key once more.
func TestOwnersOfOldKeys(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t, machineConfig(t), v1alpha1.SecretboxKey)
	_, old, err := w.make(t.Context(), w.scope)
	g.Expect(err).NotTo(HaveOccurred())
	snapshot := func(name string, contents *v1alpha1.SnapshotContents) *v1alpha1.EtcdSnapshot {
		made := &v1alpha1.EtcdSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
		made.Spec.ClusterName, made.Spec.Contents = "c1", contents
		return made
	}
	owners := func() (names []string) {
		secret := &corev1.Secret{}
		g.Expect(w.admin.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: oldKeyName(w.scope.Cluster, old[0].fingerprint)}, secret)).To(Succeed())
		g.Expect(secret.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "c1"))
		for _, owner := range secret.OwnerReferences {
			names = append(names, owner.Kind+" "+owner.Name)
		}
		return names
	}
	keep := func() { g.Expect(w.keeper.keepOld(t.Context(), w.scope, old[0])).To(Succeed()) }
	give := func() { g.Expect(w.keeper.giveOld(t.Context(), w.scope)).To(Succeed()) }
	keep()
	give()
	g.Expect(owners()).To(Equal([]string{"TalosCluster c1"}), "no snapshot needs it")
	g.Expect(w.admin.Create(t.Context(), snapshot("s1", &v1alpha1.SnapshotContents{
		Keys: v1alpha1.SnapshotKeys{Encryption: []v1alpha1.SnapshotEncryptionKey{{Fingerprint: old[0].fingerprint}}},
	}))).To(Succeed())
	give()
	g.Expect(owners()).To(Equal([]string{"EtcdSnapshot s1"}))
	keep()
	keep()
	g.Expect(owners()).To(Equal([]string{"EtcdSnapshot s1", "TalosCluster c1"}), "it is in use again, and snapshots are taken")
	unknown := snapshot("s2", nil)
	g.Expect(w.admin.Create(t.Context(), unknown)).To(Succeed())
	give()
	g.Expect(owners()).To(Equal([]string{"EtcdSnapshot s1", "TalosCluster c1"}), "nobody knows what s2 needs")
	g.Expect(w.admin.Delete(t.Context(), unknown)).To(Succeed())
	give()
	g.Expect(owners()).To(Equal([]string{"EtcdSnapshot s1"}))
}

// What the key that goes has encrypted cannot be read any more: the API server that has dropped it shows whether there is such a thing.
func TestProofByReading(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t, machineConfig(t), v1alpha1.SecretboxKey)
	w.api.Store("secrets", "a/x", "a/y")
	for _, stage := range []string{"DropSecretbox", "BackAcceptSecretbox"} {
		outcome, err := w.Do(t.Context(), w.scope, w.in(stage), v1alpha1.ProvingStep)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(outcome.Message).To(Equal("its API server reads 2 encrypted objects with key2 alone"))
		w.api.FailNext("ReadAll", "at-cp-1", apierrors.NewInternalError(errors.New("no matching key was found")))
		_, err = w.Do(t.Context(), w.scope, w.in(stage), v1alpha1.ProvingStep)
		g.Expect(err).To(MatchError(ContainSubstring("the API server of c1-cp-1 cannot read all that is encrypted")))
		g.Expect(w.Classify(err)).To(Equal(v1alpha1.ErrorRetryable), "etcd may have no leader for a moment")
	}
}

// Before it loses a key, an API server writes what it reads with it, from the first object on.
func TestRewriteBeforeADrop(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t, machineConfig(t), v1alpha1.SecretboxKey)
	w.options.Chunk = 2
	w.api.Store("secrets", "a/x", "a/y", "b/x")
	unit := w.in("DropSecretbox")
	outcome, err := w.Do(t.Context(), w.scope, unit, v1alpha1.RewritingStep)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(outcome.Progress).To(Equal(&v1alpha1.UnitProgress{Cursor: "secrets a/y", Done: 2}))
	unit.Status.Progress = outcome.Progress
	w.api.FailNext("RewriteAt", "at-cp-1", errors.New("denied"))
	outcome, err = w.Do(t.Context(), w.scope, unit, v1alpha1.RewritingStep)
	g.Expect(err).To(HaveOccurred())
	g.Expect(outcome.Progress.Cursor).To(BeEmpty(), "it begins anew")
	outcome, err = w.Do(t.Context(), w.scope, unit, v1alpha1.RewritingStep)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(outcome.Progress).To(Equal(&v1alpha1.UnitProgress{Done: 3}))
	g.Expect(w.api.Calls()).To(HaveEach("RewriteAt at-cp-1"), "at its own address")
	g.Expect(w.api.Written("secrets", "b/x")).To(Equal(1))
}

// An API server that does not answer is no reason to keep the others from going back: that may be what is taken back.
func TestProofWithoutWhoIsSick(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t, machineConfig(t), v1alpha1.ServiceAccountKey)
	w.api.SetServer("at-cp-2")
	_, err := w.prove(t.Context(), w.scope, w.in("SwapServiceAccount"))
	g.Expect(err).To(HaveOccurred())
	outcome, err := w.prove(t.Context(), w.scope, w.in("BackSwapServiceAccount"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(outcome.Message).To(ContainSubstring("0 others and this one"))
}

// A token of the key that is taken away is refused, on the way back as well.
func TestProofByTokens(t *testing.T) {
	g := NewWithT(t)
	config := machineConfig(t)
	w := newWorld(t, config, v1alpha1.ServiceAccountKey)
	_, err := w.generate(t.Context(), w.scope)
	g.Expect(err).NotTo(HaveOccurred())
	kept, _, err := w.keeper.load(t.Context(), w.scope)
	g.Expect(err).NotTo(HaveOccurred())
	for _, stage := range []string{"AcceptServiceAccount", "SwapServiceAccount", "BackSwapServiceAccount"} {
		config, err = wanted(w.scope.Spec, stage, config, kept, "")
		g.Expect(err).NotTo(HaveOccurred())
		w.configure(g, config)
		_, err = w.prove(t.Context(), w.scope, w.in(stage))
		g.Expect(err).NotTo(HaveOccurred(), stage)
	}
	_, err = w.prove(t.Context(), w.scope, w.in("BackAcceptServiceAccount"))
	g.Expect(err).To(MatchError("the API server of c1-cp-1 still takes a token of the new key"))
	config, err = wanted(w.scope.Spec, "BackAcceptServiceAccount", config, kept, "")
	g.Expect(err).NotTo(HaveOccurred())
	w.configure(g, config)
	_, err = w.prove(t.Context(), w.scope, w.in("BackAcceptServiceAccount"))
	g.Expect(err).NotTo(HaveOccurred())
	_, err = w.prove(t.Context(), w.scope, w.in("DropServiceAccount"))
	g.Expect(err).To(MatchError("the API server of c1-cp-1 still takes a token of the old key"))
}

// Where tokens are verified elsewhere, somebody has to publish the new key there.
func TestIssuer(t *testing.T) {
	g := NewWithT(t)
	config := machineConfig(t)
	w := newWorld(t, config, v1alpha1.ServiceAccountKey)
	_, err := w.generate(t.Context(), w.scope)
	g.Expect(err).NotTo(HaveOccurred())
	found := w.lookAtIssuer(t.Context(), w.scope)
	g.Expect(found.keyID).NotTo(BeEmpty())
	g.Expect(found).To(Equal(clusterLook{keyID: found.keyID}))
	elsewhere := strings.Replace(string(config), "issuerURL: https://10.0.0.1:6443", "issuerURL: https://bucket.example/c1", 1)
	g.Expect(elsewhere).NotTo(Equal(string(config)))
	w.configure(g, []byte(elsewhere))
	g.Expect(w.lookAtIssuer(t.Context(), w.scope)).To(Equal(clusterLook{keyID: found.keyID, issuer: "https://bucket.example/c1"}))
}
