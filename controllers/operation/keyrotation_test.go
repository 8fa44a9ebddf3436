// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"go.yaml.in/yaml/v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/controllers/operation/kind/keyrotation"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/script"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/providers/target"
)

// keyBundle are the secrets of a cluster whose keys are rotated.
var keyBundle = sync.OnceValue(func() *secrets.Bundle {
	made, err := secrets.NewBundle(secrets.NewClock(), talosconfig.TalosVersionCurrent, secrets.WithECDSAServiceAccountKey())
	Expect(err).NotTo(HaveOccurred())
	return made
})

// keyConfig is the config of a control plane, as Talos of a version generates it.
func keyConfig(version string) []byte {
	GinkgoHelper()
	contract, err := talosconfig.ParseContractFromVersion(version)
	Expect(err).NotTo(HaveOccurred())
	input, err := generate.NewInput("c", "https://10.0.0.1:6443", "1.35.1", generate.WithVersionContract(contract), generate.WithSecretsBundle(keyBundle()))
	Expect(err).NotTo(HaveOccurred())
	made, err := input.Config(machine.TypeControlPlane)
	Expect(err).NotTo(HaveOccurred())
	data, err := made.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	Expect(err).NotTo(HaveOccurred())
	return data
}

// keyWorld is what is special about a target whose keys are rotated: it keeps what API servers have read, as Talos and kubelets bring it
// about.
type keyWorld struct {
	*fleet

	// lazy says that Talos writes the files of an API server and does not restart it: it had done so before.
	lazy bool

	mu sync.Mutex
}

// management notes what is made on the management cluster for a rotation, and can be stopped there.
type management struct {
	client.Client
	*script.Script
}

// Create implements client.Client.
func (m *management) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	subject := "other"
	if strings.HasSuffix(object.GetName(), "-keys") {
		subject = "keys"
	}
	return m.Run(ctx, "Create", subject, func() error { return m.Client.Create(ctx, object, options...) })
}

// newKeyExecutor is the executor with tokens that are refreshed at once.
func newKeyExecutor(f *fleet) *keyrotation.Executor {
	f.management = &management{Client: admin, Script: script.New()}
	return keyrotation.New(keyrotation.Options{
		Talos: f.talos, Kube: f.kube, Client: f.management, Live: admin, Snapshots: f.snapshots, Bundles: f.renew,
		RestartAfter: time.Millisecond, Refresh: time.Millisecond, Chunk: 2,
	})
}

// renew stands for who keeps the bundle of secrets.
func (f *fleet) renew(ctx context.Context, _ target.Target, change func(*secrets.Bundle) error) error {
	if err := guard.Check(ctx, "Renew"); err != nil {
		return err
	}
	return f.management.Run(ctx, "Renew", "bundle", func() error {
		made := *keyBundle()
		certs, own := *made.Certs, *made.Secrets
		made.Certs, made.Secrets = &certs, &own
		if err := change(&made); err != nil {
			return err
		}
		f.renewed = append(f.renewed, &made)
		return nil
	})
}

// rotates makes a target one whose keys can be rotated, with configs as a version of Talos generates them. On a lazy one, API servers have not
// read what Talos has written last.
func (f *fleet) rotates(ctx context.Context, version string, lazy bool) *keyWorld {
	GinkgoHelper()
	w := &keyWorld{fleet: f, lazy: lazy}
	f.runs(ctx, newVersion, newVersion)
	f.backedUp(ctx)
	config := keyConfig(version)
	for name, address := range f.addresses {
		if strings.HasPrefix(name, "cp") {
			f.talos.Configure(address, talos.Config{Active: config, Persistent: config})
			w.start(address, config)
			w.write(address, config)
			if !lazy {
				w.start(address, config)
			}
		}
	}
	f.talos.Applied = w.applied
	f.kube.Store("secrets", "a/x", "a/y", "b/x", "c/z", "kube-system/t")
	return w
}

// applied is what Talos does about a config: it writes the files, and restarts the API server.
func (w *keyWorld) applied(address string, data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	mark := machineconfig.RestartMark(data)
	if !w.lazy || mark != w.marks[address] {
		defer w.start(address, data)
	}
	if mark == w.marks[address] {
		w.write(address, data)
	}
	if w.marks == nil {
		w.marks = map[string]string{}
	}
	w.marks[address] = mark
}

// write writes the files of an API server.
func (f *fleet) write(address string, data []byte) {
	GinkgoHelper()
	provider, err := configloader.NewFromBytes(data)
	Expect(err).NotTo(HaveOccurred())
	object := map[string]any{"resources": []any{map[string]any{"resources": []any{"secrets"}, "providers": []any{
		map[string]any{"secretbox": map[string]any{"keys": []any{map[string]any{"name": "key2", "secret": keyBundle().Secrets.SecretboxEncryptionSecret}}}},
		map[string]any{"identity": map[string]any{}},
	}}}}
	if own := provider.K8sEtcdEncryptionConfig(); own != nil {
		object = own.EtcdEncryptionConfig()
	}
	rendered, err := yaml.Marshal(object)
	Expect(err).NotTo(HaveOccurred())
	f.talos.WriteAt(address, "/system/secrets/kubernetes/kube-apiserver/encryptionconfig.yaml", rendered, f.tick())
}

// tick is the clock of the machines: whatever happens there takes ten seconds.
func (f *fleet) tick() time.Time {
	return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(f.ticks.Add(1)) * 10 * time.Second)
}

// start has an API server read its files.
func (f *fleet) start(address string, data []byte) {
	GinkgoHelper()
	account, err := machineconfig.ServiceAccountOf(data)
	Expect(err).NotTo(HaveOccurred())
	ids, err := account.KeyIDs()
	Expect(err).NotTo(HaveOccurred())
	f.kube.SetServer(address, ids...)
	f.kube.SetPod(kube.ComponentPod{Component: "kube-apiserver", Node: f.nameOf(address), Ready: true, Started: f.tick()})
}

// rotation rotates keys.
func rotation(keys ...v1alpha1.RotatedKey) v1alpha1.TalosOperationSpec {
	return v1alpha1.TalosOperationSpec{Kind: v1alpha1.KeyRotationKind, KeyRotation: &v1alpha1.KeyRotationParameters{Keys: keys}}
}

// expectKeys expects every control plane to have the new key and no other, and everything to be written again once, unless nobody knows.
func (f *fleet) expectKeys(unknown bool, keys ...v1alpha1.RotatedKey) {
	GinkgoHelper()
	old := keyBundle()
	var configs [][]byte
	for name, address := range f.addresses {
		if strings.HasPrefix(name, "cp") {
			own := f.talos.ConfigOf(address)
			Expect(own.Active).To(Equal(own.Persistent), name)
			Expect(machineconfig.RestartMark(own.Active)).To(BeEmpty(), name)
			configs = append(configs, own.Active)
		}
	}
	for _, key := range keys {
		switch key {
		case v1alpha1.ServiceAccountKey:
			var issuers []string
			for _, config := range configs {
				account, err := machineconfig.ServiceAccountOf(config)
				Expect(err).NotTo(HaveOccurred())
				Expect(account.Issuer).NotTo(Equal(string(old.Certs.K8sServiceAccount.Key)))
				Expect(account.Accepted).To(BeEmpty())
				issuers = append(issuers, account.Issuer)
			}
			Expect(issuers).To(HaveEach(issuers[0]), "the same on every control plane")
			Expect(string(f.renewed[len(f.renewed)-1].Certs.K8sServiceAccount.Key)).To(Equal(issuers[0]))
		case v1alpha1.SecretboxKey:
			var found []machineconfig.EncryptionKey
			for _, config := range configs {
				encryption, err := machineconfig.EncryptionOf(config)
				Expect(err).NotTo(HaveOccurred())
				Expect(encryption.Keys()).To(HaveLen(1))
				Expect(encryption.Keys()[0].Secret).NotTo(Equal(old.Secrets.SecretboxEncryptionSecret))
				found = append(found, encryption.Keys()[0])
			}
			Expect(found).To(HaveEach(found[0]), "the same on every control plane")
			Expect(f.renewed[len(f.renewed)-1].Secrets.SecretboxEncryptionSecret).To(Equal(found[0].Secret))
			most := 1
			if unknown {
				most = 2
			}
			for _, name := range []string{"a/x", "a/y", "b/x", "c/z", "kube-system/t"} {
				Expect(f.kube.Written("secrets", name)).To(And(BeNumerically(">=", 1), BeNumerically("<=", most)), name)
			}
		}
	}
}

// oldKeys are the Secrets with old keys.
func (f *fleet) oldKeys(ctx context.Context) []corev1.Secret {
	GinkgoHelper()
	list := &corev1.SecretList{}
	Expect(admin.List(ctx, list, client.InNamespace(f.namespace), client.HasLabels{v1alpha1.OldKeyLabel})).To(Succeed())
	return list.Items
}

var _ = Describe("Rotating keys", func() {
	both := []v1alpha1.RotatedKey{v1alpha1.ServiceAccountKey, v1alpha1.SecretboxKey}

	for _, version := range []string{"v1.13.6", newVersion} {
		It("replaces both, one after the other, from configs as Talos "+version+" makes them (H8)", func(ctx SpecContext) {
			f := newFleet(ctx, 3, 1)
			f.rotates(ctx, version, false)
			f.startHub()
			op := f.create(ctx, "keys", rotation(both...))
			Eventually(now(ctx, op)).WithTimeout(3 * time.Minute).Should(beCompleted())
			f.expectKeys(false, both...)
			done, err := now(ctx, op)()
			Expect(err).NotTo(HaveOccurred())
			Expect(done.Status.CompletedStages).To(Equal([]string{
				"Check", "Keys", "Migrate", "AcceptServiceAccount", "PublishKeys", "SwapServiceAccount", "RefreshTokens", "DropServiceAccount",
				"Snapshot", "AcceptSecretbox", "SwapSecretbox", "Rewrite", "DropSecretbox", "Bundle",
			}))
			Expect(unitOf(done, "Rewrite")).To(And(
				HaveField("Progress.Done", BeEquivalentTo(5)), HaveField("Progress.Cursor", ""), HaveField("Message", "5 objects written again")))
			Expect(f.calls("Reboot", "Shutdown")).To(BeEmpty())
			for _, call := range f.calls() {
				Expect(call).NotTo(HaveSuffix(" w1"), "control planes only")
			}
			for _, line := range f.kube.Calls() {
				Expect(line).NotTo(HavePrefix("Cordon"))
			}
			kept := map[string]string{}
			for _, secret := range f.oldKeys(ctx) {
				kept[secret.Labels[v1alpha1.OldKeyLabel]] = string(secret.Data["secret"]) + string(secret.Data["key"])
			}
			Expect(kept).To(Equal(map[string]string{
				"secretbox": keyBundle().Secrets.SecretboxEncryptionSecret, "ServiceAccount": string(keyBundle().Certs.K8sServiceAccount.Key),
			}))
			Expect(f.movable(ctx)).To(BeTrue())
			cluster := f.cluster()
			Expect(admin.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
			Expect(cluster.Annotations).NotTo(HaveKey(v1alpha1.UnsafeAnnotation))
		}, NodeTimeout(5*time.Minute))
	}

	It("keeps to itself what the keys are", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 0)
		f.rotates(ctx, newVersion, false)
		f.startHub()
		op := f.create(ctx, "keys", rotation(both...))
		Eventually(now(ctx, op)).WithTimeout(3 * time.Minute).Should(beCompleted())
		done, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		text := fmt.Sprintf("%+v", done.Status)
		events, err := f.events(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		text += strings.Join(events, "\n")
		config := f.talos.ConfigOf(f.addresses["cp1"]).Active
		encryption, err := machineconfig.EncryptionOf(config)
		Expect(err).NotTo(HaveOccurred())
		account, err := machineconfig.ServiceAccountOf(config)
		Expect(err).NotTo(HaveOccurred())
		for _, secret := range []string{
			encryption.Keys()[0].Secret, keyBundle().Secrets.SecretboxEncryptionSecret, account.Issuer, base64.StdEncoding.EncodeToString([]byte(account.Issuer)),
		} {
			Expect(text).NotTo(ContainSubstring(secret))
		}
	})

	It("restarts an API server that Talos restarted too early, and leaves nothing of that", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 0)
		f.rotates(ctx, newVersion, true)
		f.startHub()
		op := f.create(ctx, "keys", rotation(v1alpha1.SecretboxKey))
		Eventually(now(ctx, op)).WithTimeout(3 * time.Minute).Should(beCompleted())
		f.expectKeys(false, v1alpha1.SecretboxKey)
		done, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		Expect(done.Machine("c-cp1").Steps).To(ContainElement(HaveField("Step", v1alpha1.RestartingStep)))
	}, NodeTimeout(5*time.Minute))

	It("waits for Secrets with tokens that nobody renews, and names them, until somebody confirms", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 0)
		f.rotates(ctx, newVersion, false)
		f.kube.SetLegacyTokens(kube.LegacyToken{Name: "ci/robot-token", Created: time.Now().Add(-time.Hour)}, kube.LegacyToken{Name: "ci/new", Created: time.Now().Add(time.Hour)})
		f.startHub()
		op := f.create(ctx, "keys", rotation(v1alpha1.ServiceAccountKey))
		Eventually(func() (*v1alpha1.UnitStatus, error) {
			found, err := now(ctx, op)()
			return unitOf(found, "RefreshTokens"), err
		}).WithTimeout(3 * time.Minute).Should(HaveField("Message", Equal(
			"1 Secret with a token of the old key, which nobody renews: delete and make anew ci/robot-token; end it earlier with: ichor operation confirm keys")))
		change(ctx, op, func(op *v1alpha1.TalosOperation) {
			metav1.SetMetaDataAnnotation(&op.ObjectMeta, v1alpha1.ConfirmStageAnnotation, "RefreshTokens")
		})
		Eventually(now(ctx, op)).WithTimeout(3 * time.Minute).Should(beCompleted())
		f.expectKeys(false, v1alpha1.ServiceAccountKey)
	}, NodeTimeout(5*time.Minute))

	It("does not drop an old key without a control plane that is held by now, or away", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 0)
		f.rotates(ctx, newVersion, false)
		stop := f.kube.HangBefore("Rewrite", "secrets")
		f.startHub()
		op := f.create(ctx, "keys", rotation(v1alpha1.SecretboxKey))
		Eventually(stop.Reached).WithTimeout(3 * time.Minute).Should(BeClosed())
		change(ctx, f.machine(ctx, "cp2"), func(m *v1alpha1.TalosMachine) {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.UpgradeHoldAnnotation, "no")
		})
		stop.Release()
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "KeysInUse", ContainSubstring("control plane c-cp2 is held, and no key is dropped without it")))
		f.talos.Silence(f.addresses["cp3"], true)
		change(ctx, f.machine(ctx, "cp2"), func(m *v1alpha1.TalosMachine) { delete(m.Annotations, v1alpha1.UpgradeHoldAnnotation) })
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "KeysInUse", ContainSubstring("control plane c-cp3 does not tell which key it uses")))
		for name, address := range f.addresses {
			encryption, err := machineconfig.EncryptionOf(f.talos.ConfigOf(address).Active)
			Expect(err).NotTo(HaveOccurred())
			Expect(encryption.Keys()).To(HaveLen(2), name)
		}
		f.talos.Silence(f.addresses["cp3"], false)
		Eventually(now(ctx, op)).WithTimeout(3 * time.Minute).Should(beCompleted())
		f.expectKeys(false, v1alpha1.SecretboxKey)
	}, NodeTimeout(5*time.Minute))

	It("writes again before the drop what a control plane has written with the old key since", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 0)
		f.rotates(ctx, newVersion, false)
		stop := f.kube.HangAfter("Rewrite", "secrets")
		f.startHub()
		op := f.create(ctx, "keys", rotation(v1alpha1.SecretboxKey))
		Eventually(stop.Reached).WithTimeout(3 * time.Minute).Should(BeClosed())
		config := f.talos.ConfigOf(f.addresses["cp2"])
		f.talos.Configure(f.addresses["cp2"], writesWithTheOther(config))
		f.kube.Store("secrets", "a/a") // In front of what is done.
		stop.Release()
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "KeysInUse", ContainSubstring("control plane c-cp2 does not use the new key")))
		f.talos.Configure(f.addresses["cp2"], config)
		Eventually(now(ctx, op)).WithTimeout(3 * time.Minute).Should(beCompleted())
		f.expectKeys(false, v1alpha1.SecretboxKey)
		Expect(f.kube.Written("secrets", "a/a")).To(Equal(1))
	}, NodeTimeout(5*time.Minute))

	It("is turned back although an API server does not come up", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 0)
		w := f.rotates(ctx, newVersion, false)
		sick, node := f.addresses["cp3"], "cp3" // Neither the first one nor the last.
		f.talos.Applied = func(address string, data []byte) {
			w.applied(address, data)
			account, err := machineconfig.ServiceAccountOf(data)
			Expect(err).NotTo(HaveOccurred())
			broken := address == sick && account.Issuer != string(keyBundle().Certs.K8sServiceAccount.Key)
			if broken {
				f.kube.SetServer(sick)
				f.kube.SetPod(kube.ComponentPod{Component: "kube-apiserver", Node: node, Started: f.tick(), Trouble: "CrashLoopBackOff"})
			}
			f.kube.Change(node, func(n *kube.Node) { n.Ready = !broken && (address == sick || n.Ready) })
		}
		f.startHub()
		op := f.create(ctx, "keys", rotation(v1alpha1.ServiceAccountKey))
		Eventually(now(ctx, op)).WithTimeout(3 * time.Minute).Should(HaveField("Status.Machines", ContainElement(And(
			HaveField("Name", "c-cp3"), HaveField("Stage", "SwapServiceAccount"), HaveField("Step", v1alpha1.VerifyingStep)))))
		turnBack(ctx, op)
		f.expectTurnedBack(ctx, op, "BackSwapServiceAccount", "BackRefreshTokens", "BackAcceptServiceAccount")
	}, NodeTimeout(5*time.Minute))

	It("is turned back before it has made keys", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 0)
		f.rotates(ctx, newVersion, false)
		stop := f.talos.HangBefore("CheckConfig", f.addresses["cp1"])
		f.startHub()
		op := f.create(ctx, "keys", rotation(v1alpha1.ServiceAccountKey))
		Eventually(stop.Reached).WithTimeout(3 * time.Minute).Should(BeClosed())
		turnBack(ctx, op)
		Eventually(now(ctx, op)).Should(haveCondition("TurningBack", metav1.ConditionTrue, "TurningBack", Not(BeEmpty())))
		stop.Release()
		f.expectTurnedBack(ctx, op, "Bundle")
		Expect(now(ctx, op)()).To(WithTransform(func(op *v1alpha1.TalosOperation) *v1alpha1.UnitStatus { return unitOf(op, "Bundle") },
			HaveField("Message", "nothing was changed")))
	}, NodeTimeout(5*time.Minute))

	It("is turned back while Secrets are written again, which are written with the old key once more", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 0)
		f.rotates(ctx, newVersion, false)
		stop := f.kube.HangBefore("Rewrite", "secrets")
		f.startHub()
		op := f.create(ctx, "keys", rotation(v1alpha1.SecretboxKey))
		Eventually(stop.Reached).WithTimeout(3 * time.Minute).Should(BeClosed())
		turnBack(ctx, op)
		stop.Release()
		f.expectTurnedBack(ctx, op, "BackSwapSecretbox", "BackRewrite", "BackAcceptSecretbox")
		for _, name := range []string{"a/x", "a/y", "b/x", "c/z", "kube-system/t"} {
			Expect(f.kube.Written("secrets", name)).To(BeNumerically(">=", 1), name)
		}
	}, NodeTimeout(5*time.Minute))

	It("is turned back while tokens are refreshed, and not once a control plane has begun to drop the old key", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 0)
		f.rotates(ctx, newVersion, false)
		f.kube.SetLegacyTokens(kube.LegacyToken{Name: "ci/robot-token", Created: time.Now().Add(-time.Hour)})
		f.startHub()
		waits := func(op *v1alpha1.TalosOperation) {
			GinkgoHelper()
			Eventually(func() (*v1alpha1.UnitStatus, error) {
				found, err := now(ctx, op)()
				return unitOf(found, "RefreshTokens"), err
			}).WithTimeout(3 * time.Minute).Should(HaveField("Message", ContainSubstring("ci/robot-token")))
		}
		op := f.create(ctx, "keys", rotation(v1alpha1.ServiceAccountKey))
		waits(op)
		turnBack(ctx, op)
		f.expectTurnedBack(ctx, op, "BackSwapServiceAccount", "BackRefreshTokens", "BackAcceptServiceAccount")

		op = f.create(ctx, "again", rotation(v1alpha1.ServiceAccountKey))
		waits(op)
		stop := f.talos.HangBefore("ApplyConfig", f.addresses["cp1"])
		change(ctx, op, func(op *v1alpha1.TalosOperation) {
			metav1.SetMetaDataAnnotation(&op.ObjectMeta, v1alpha1.ConfirmStageAnnotation, "RefreshTokens")
		})
		Eventually(stop.Reached).Should(BeClosed())
		turnBack(ctx, op)
		Eventually(now(ctx, op)).Should(haveCondition("TurningBack", metav1.ConditionFalse, "NoWayBack", ContainSubstring("there is no way back")))
		stop.Release()
		Eventually(now(ctx, op)).WithTimeout(3 * time.Minute).Should(beCompleted())
		f.expectKeys(false, v1alpha1.ServiceAccountKey)
	}, NodeTimeout(5*time.Minute))
})

// writesWithTheOther is a config whose API server writes with the second of its two keys.
func writesWithTheOther(config talos.Config) talos.Config {
	GinkgoHelper()
	encryption, err := machineconfig.EncryptionOf(config.Active)
	Expect(err).NotTo(HaveOccurred())
	Expect(encryption.Keys()).To(HaveLen(2))
	made, err := machineconfig.WithEncryption(config.Active, encryption.Accepting(encryption.Keys()[0]))
	Expect(err).NotTo(HaveOccurred())
	return talos.Config{Active: made, Persistent: made}
}

// expectTurnedBack expects an operation to have taken back what it did in stages, and every control plane to have the old keys and no others.
func (f *fleet) expectTurnedBack(ctx context.Context, op *v1alpha1.TalosOperation, stages ...string) {
	GinkgoHelper()
	Eventually(now(ctx, op)).WithTimeout(3 * time.Minute).Should(beCompleted())
	Expect(now(ctx, op)()).To(And(
		haveCondition("TurningBack", metav1.ConditionFalse, "TurnedBack", BeEmpty()),
		HaveField("Status.CompletedStages", ContainElements(stages))))
	f.expectOldKeys()
}

// expectOldKeys expects every control plane to have the old keys and no others, and the bundle as well.
func (f *fleet) expectOldKeys() {
	GinkgoHelper()
	old := keyBundle()
	for name, address := range f.addresses {
		if !strings.HasPrefix(name, "cp") {
			continue
		}
		config := f.talos.ConfigOf(address).Active
		account, err := machineconfig.ServiceAccountOf(config)
		Expect(err).NotTo(HaveOccurred())
		Expect(account.Issuer).To(Equal(string(old.Certs.K8sServiceAccount.Key)), name)
		Expect(account.Accepted).To(BeEmpty(), name)
		encryption, err := machineconfig.EncryptionOf(config)
		Expect(err).NotTo(HaveOccurred())
		Expect(encryption.Keys()).To(HaveExactElements(HaveField("Secret", old.Secrets.SecretboxEncryptionSecret)), name)
	}
	for _, made := range f.renewed {
		Expect(made.Secrets.SecretboxEncryptionSecret).To(Equal(old.Secrets.SecretboxEncryptionSecret))
		Expect(made.Certs.K8sServiceAccount.Key).To(Equal(old.Certs.K8sServiceAccount.Key))
	}
}
