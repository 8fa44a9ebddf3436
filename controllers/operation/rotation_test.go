// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/siderolabs/crypto/x509"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

const (
	talosCA      = v1alpha1.TalosCA
	kubernetesCA = v1alpha1.KubernetesCA
)

// confirm says that people have the credentials of an authority.
func confirm(ctx context.Context, op *v1alpha1.TalosOperation, of v1alpha1.CAAuthority) {
	GinkgoHelper()
	change(ctx, op, func(o *v1alpha1.TalosOperation) {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, "ichor.maesh.dev/confirm-stage", string(of)+"AwaitingCredentials")
	})
}

// confirmed is how an operation is made that asks nobody about an authority.
func confirmed(of v1alpha1.CAAuthority) map[string]string {
	return map[string]string{"ichor.maesh.dev/confirm-stage": string(of) + "AwaitingCredentials"}
}

func turnBack(ctx context.Context, op *v1alpha1.TalosOperation) {
	GinkgoHelper()
	change(ctx, op, func(o *v1alpha1.TalosOperation) {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, "ichor.maesh.dev/turn-back", "true")
	})
}

// waitingFor is an operation that waits at a gate.
func waitingFor(gate string, message any) OmegaMatcher {
	matcher, ok := message.(OmegaMatcher)
	if !ok {
		matcher = Equal(message)
	}
	return haveCondition("Progressing", metav1.ConditionFalse, gate, matcher)
}

// expectRotated expects every machine to know nothing of the old authority, and every credential to be of the new one.
func (f *fleet) expectRotated(ctx context.Context, of v1alpha1.CAAuthority) {
	GinkgoHelper()
	for name, address := range f.standing() {
		signs, accepts, others := f.position(of, name)
		Expect([]bool{signs, accepts, others}).To(Equal([]bool{false, false, true}), name)
		own := f.talos.ConfigOf(address)
		Expect(own.Persistent).To(Equal(own.Active), name)
	}
	authorities, certificate := f.trusted(ctx, of)
	old := oldAuthority(of).Certificate
	Expect(credentials.SignedBy(certificate, authorities)).To(BeTrue())
	Expect(credentials.SignedBy(certificate, old)).To(BeFalse())
	Expect(strings.Count(string(authorities), "BEGIN CERTIFICATE")).To(Equal(1))
	bundle, err := credentials.ParseBundle(f.secret(ctx, "c-talos"))
	Expect(err).NotTo(HaveOccurred())
	kept := bundle.Certs.OS
	if of == kubernetesCA {
		kept = bundle.Certs.K8s
		Expect(f.secret(ctx, "c-ca")).To(HaveKeyWithValue("tls.key", kept.Key))
	}
	Expect(credentials.SignedBy(certificate, kept.Crt)).To(BeTrue())
	cluster := f.cluster()
	Expect(admin.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
	Expect(cluster.Annotations).To(HaveKey("ichor.maesh.dev/bundle-changed-at"))
	Expect(cluster.Annotations).NotTo(HaveKey("ichor.maesh.dev/unsafe"))
	f.expectNothingKept(ctx)
}

// expectUnchanged expects everything to be what it was.
func (f *fleet) expectUnchanged(ctx context.Context, of v1alpha1.CAAuthority) {
	GinkgoHelper()
	for name := range f.standing() {
		signs, accepts, others := f.position(of, name)
		Expect([]bool{signs || strings.HasPrefix(name, "w"), accepts, others}).To(Equal([]bool{true, true, false}), name)
	}
	authorities, certificate := f.trusted(ctx, of)
	Expect(credentials.SignedBy(certificate, oldAuthority(of).Certificate)).To(BeTrue())
	Expect(strings.TrimSpace(string(authorities))).To(Equal(strings.TrimSpace(string(oldAuthority(of).Certificate))))
	f.expectNothingKept(ctx)
}

// expectNothingKept expects the Secret to be gone that the operation had for itself.
func (f *fleet) expectNothingKept(ctx context.Context) {
	GinkgoHelper()
	for _, name := range f.secretNames(ctx) {
		Expect(name).NotTo(HavePrefix("ca-rotation-"))
	}
}

// perMachine counts the configs that each machine was given.
func (f *fleet) perMachine() map[string]int {
	count := map[string]int{}
	for _, call := range f.calls("ApplyConfig") {
		count[strings.TrimPrefix(call, "ApplyConfig ")]++
	}
	return count
}

var _ = Describe("A rotation of certificate authorities", func() {
	for _, version := range []string{"v1.13.6", "v1.14.1"} {
		for _, of := range []v1alpha1.CAAuthority{talosCA, kubernetesCA} {
			It("of "+string(of)+" goes machine by machine, and waits for people before it drops the old one, with configs of Talos "+version, func(ctx SpecContext) {
				f := newFleet(ctx, 3, 2)
				f.hasAuthorities(ctx, version)
				f.startHub()
				op := f.create(ctx, "rotate", rotates(of)())
				Eventually(now(ctx, op)).Should(waitingFor("CredentialsConfirmed", ContainSubstring("then: ichor operation confirm rotate")))
				for name := range f.addresses {
					_, accepts, others := f.position(of, name)
					Expect([]bool{accepts, others}).To(Equal([]bool{true, true}), name)
				}
				authorities, certificate := f.trusted(ctx, of)
				Expect(credentials.SignedBy(certificate, oldAuthority(of).Certificate)).To(BeFalse(), "the new ones are there")
				Expect(strings.Count(string(authorities), "BEGIN CERTIFICATE")).To(Equal(1))
				Consistently(now(ctx, op), 300*time.Millisecond).Should(HaveField("Status.Stage", string(of)+"AwaitingCredentials"))
				Expect(now(ctx, op)()).To(HaveField("Status.Units", ContainElement(And(HaveField("Name", string(of)+"AwaitingCredentials"), HaveField("Step", v1alpha1.AwaitingCredentialsStep)))))
				cluster := f.cluster()
				Expect(admin.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
				Expect(cluster.Annotations).To(HaveKeyWithValue("ichor.maesh.dev/unsafe", "rotate"))

				confirm(ctx, op, of)
				Eventually(now(ctx, op)).Should(beCompleted())
				f.expectRotated(ctx, of)
				calls := f.calls("ApplyConfig")
				Expect(calls[:5]).To(Equal([]string{"ApplyConfig cp2", "ApplyConfig cp3", "ApplyConfig cp1", "ApplyConfig w1", "ApplyConfig w2"}), "control planes accept first")
				last := []string{"ApplyConfig cp2", "ApplyConfig cp3", "ApplyConfig cp1", "ApplyConfig w1", "ApplyConfig w2"}
				if of == kubernetesCA {
					last = []string{"ApplyConfig w1", "ApplyConfig w2", "ApplyConfig cp2", "ApplyConfig cp3", "ApplyConfig cp1"}
				}
				Expect(calls[len(calls)-5:]).To(Equal(last))
				Expect(f.calls("Reboot", "Drain")).To(BeEmpty())
			})
		}
	}

	It("of both goes one after the other, and asks people twice", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.hasAuthorities(ctx, "v1.14.1")
		f.startHub()
		op := f.create(ctx, "rotate", rotates(talosCA, kubernetesCA)())
		Eventually(now(ctx, op)).Should(waitingFor("CredentialsConfirmed", ContainSubstring("c-talosconfig")))
		f.expectAuthorityUntouched(ctx, kubernetesCA)
		confirm(ctx, op, talosCA)
		Eventually(now(ctx, op)).Should(waitingFor("CredentialsConfirmed", ContainSubstring("c-kubeconfig")))
		confirm(ctx, op, kubernetesCA)
		Eventually(now(ctx, op)).Should(beCompleted())
		f.expectRotated(ctx, talosCA)
		f.expectRotated(ctx, kubernetesCA)
	})

	It("waits for a machine that is away, in every pass, and says which (H6)", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.hasAuthorities(ctx, "v1.13.6")
		f.annotations = confirmed(talosCA)
		f.silentNode("w2", true)
		f.startHub()
		op := f.create(ctx, "rotate", rotates(talosCA)())
		Eventually(now(ctx, op)).Should(waitingFor("RotationPass", "machine c-w2 does not answer: no answer"))
		Expect(f.calls("ApplyConfig")).To(BeEmpty())
		for _, stage := range []string{"TalosAccept", "TalosSwap", "TalosDrop"} {
			stop := f.talos.HangBefore("ApplyConfig", f.addresses["w1"])
			f.silentNode("w2", false)
			Eventually(stop.Reached).Should(BeClosed(), stage)
			f.silentNode("w2", true)
			stop.Release()
			Eventually(now(ctx, op)).Should(And(HaveField("Status.Stage", stage), waitingFor("TargetReachable", ContainSubstring("c-w2 does not answer"))), stage)
			Consistently(now(ctx, op), 200*time.Millisecond).Should(HaveField("Status.Stage", stage))
		}
		f.silentNode("w2", false)
		Eventually(now(ctx, op)).Should(beCompleted())
		f.expectRotated(ctx, talosCA)
		Expect(f.perMachine()).To(Equal(map[string]int{"cp1": 3, "w1": 3, "w2": 3}))
	})

	for _, back := range []bool{false, true} {
		It(fmt.Sprintf("goes on without a machine that is lost in the swap, turned back: %t", back), func(ctx SpecContext) {
			f := newFleet(ctx, 1, 2)
			f.hasAuthorities(ctx, "v1.13.6")
			accept := f.talos.HangBefore("ApplyConfig", f.addresses["w1"])
			f.startHub()
			op := f.create(ctx, "rotate", rotates(talosCA)())
			Eventually(accept.Reached).Should(BeClosed())
			swap := f.talos.HangBefore("ApplyConfig", f.addresses["w1"])
			accept.Release()
			Eventually(swap.Reached).Should(BeClosed())
			taken := f.talos.HangAfter("ApplyConfig", f.addresses["w1"])
			swap.Release()
			Eventually(taken.Reached).Should(BeClosed())
			f.silentNode("w1", true)
			taken.Release()
			Eventually(now(ctx, op)).Should(And(stepOf("c-w1", v1alpha1.VerifyingStep), waitingFor("TargetReachable", ContainSubstring("c-w1 does not answer"))))
			f.isLost(ctx, "w1")
			Eventually(now(ctx, op)).Should(waitingFor("CredentialsConfirmed", Not(BeEmpty())))
			if back {
				turnBack(ctx, op)
				Eventually(now(ctx, op)).Should(beCompleted())
				f.expectUnchanged(ctx, talosCA)
				return
			}
			confirm(ctx, op, talosCA)
			Eventually(now(ctx, op)).Should(beCompleted())
			f.expectRotated(ctx, talosCA)
		})
	}

	It("drops nothing while a machine is held, not approved or unknown, and says which", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.hasAuthorities(ctx, "v1.13.6")
		f.startHub()
		op := f.create(ctx, "rotate", rotates(talosCA)())
		Eventually(now(ctx, op)).Should(waitingFor("CredentialsConfirmed", Not(BeEmpty())))
		f.kube.Set(kube.Node{Name: "w9", Ready: true})
		confirm(ctx, op, talosCA)
		Eventually(now(ctx, op)).Should(waitingFor("RotationPass", "Node w9 is no machine that the hub knows"))

		f.joins(ctx, "w9", "10.0.1.9", "v1.13.6", v1alpha1.ApprovalPending)
		Eventually(now(ctx, op)).Should(waitingFor("RotationPass", "machine c-w9 is not approved"))
		change(ctx, f.machine(ctx, "w1"), func(m *v1alpha1.TalosMachine) {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, "ichor.maesh.dev/upgrade-hold", "")
		})
		change(ctx, f.machine(ctx, "w9"), func(m *v1alpha1.TalosMachine) { m.Spec.Approval = v1alpha1.Approved })
		Eventually(now(ctx, op)).Should(waitingFor("RotationPass", Or(Equal("machine c-w1 is held (and 1 more)"), Equal("machine c-w1 is held"))))
		Eventually(f.perMachine).Should(Equal(map[string]int{"cp1": 2, "w1": 2, "w2": 2, "w9": 1}), "who joined is brought along, and nobody drops")
		change(ctx, f.machine(ctx, "w1"), func(m *v1alpha1.TalosMachine) { delete(m.Annotations, "ichor.maesh.dev/upgrade-hold") })

		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.perMachine()).To(HaveKeyWithValue("w9", 2), "it joined with the config of before, and went to the swap at once")
		f.expectRotated(ctx, talosCA)
	})

	It("is turned back from the swap, and everything is what it was", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 1)
		f.hasAuthorities(ctx, "v1.13.6")
		stop := f.talos.HangBefore("ApplyConfig", f.addresses["w1"])
		f.startHub()
		op := f.create(ctx, "rotate", rotates(talosCA)())
		Eventually(stop.Reached).Should(BeClosed())
		again := f.talos.HangBefore("ApplyConfig", f.addresses["cp1"])
		stop.Release()
		Eventually(again.Reached).Should(BeClosed())
		turnBack(ctx, op)
		again.Release()
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(now(ctx, op)()).To(And(
			haveCondition("TurningBack", metav1.ConditionFalse, "TurnedBack", BeEmpty()),
			haveCondition("Succeeded", metav1.ConditionFalse, "TurnedBack", Equal("turned back on request: the cluster is what it was before"))))
		f.expectUnchanged(ctx, talosCA)
		Expect(f.secretNames(ctx)).NotTo(ContainElement("c-talos"), "nobody had kept a bundle")
	})

	It("is turned back while people are waited for, and not once a machine has dropped the old one", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.hasAuthorities(ctx, "v1.14.1")
		f.startHub()
		op := f.create(ctx, "rotate", rotates(kubernetesCA)())
		Eventually(now(ctx, op)).Should(waitingFor("CredentialsConfirmed", Not(BeEmpty())))
		turnBack(ctx, op)
		Eventually(now(ctx, op)).Should(beCompleted())
		f.expectUnchanged(ctx, kubernetesCA)

		f.annotations = confirmed(kubernetesCA)
		op = f.create(ctx, "again", rotates(kubernetesCA)())
		Eventually(now(ctx, op)).Should(HaveField("Status.CompletedStages", ContainElement("KubernetesSwap")))
		stop := f.talos.HangBefore("ApplyConfig", f.addresses["w1"])
		Eventually(stop.Reached).Should(BeClosed())
		turnBack(ctx, op)
		Eventually(now(ctx, op)).Should(haveCondition("TurningBack", metav1.ConditionFalse, "NoWayBack", ContainSubstring("there is no way back")))
		stop.Release()
		Eventually(now(ctx, op)).Should(beCompleted())
		f.expectRotated(ctx, kubernetesCA)
	})

	It("is turned back after a worker has renewed the certificate of its kubelet, which is never refused", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.hasAuthorities(ctx, "v1.14.1")
		f.sharedEndpoint = true
		f.startHub()
		op := f.create(ctx, "rotate", rotates(kubernetesCA)())
		Eventually(now(ctx, op)).Should(waitingFor("CredentialsConfirmed", Not(BeEmpty())))
		f.renewKubelet("w2")
		turnBack(ctx, op)
		Eventually(now(ctx, op)).Should(beCompleted())
		f.expectUnchanged(ctx, kubernetesCA)
		f.refused.Range(func(name, _ any) bool {
			Fail(fmt.Sprintf("Node %s was refused", name))
			return true
		})
	})

	It("goes on where the first control plane that drops the old one makes the Nodes of the others not ready", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 1)
		f.hasAuthorities(ctx, "v1.14.1")
		f.annotations = confirmed(kubernetesCA)
		f.sharedEndpoint = true
		f.startHub()
		op := f.create(ctx, "rotate", rotates(kubernetesCA)())
		Eventually(now(ctx, op), patience).Should(beCompleted())
		f.expectRotated(ctx, kubernetesCA)
		_, refused := f.refused.Load("cp1")
		Expect(refused).To(BeTrue())
	})

	for of, written := range map[v1alpha1.CAAuthority][]string{talosCA: {"c-talosconfig", "c-talos"}, kubernetesCA: {"c-kubeconfig", "c-talos", "c-ca"}} {
		It("of "+string(of)+" drops nothing while somebody writes a Secret with the old one", func(ctx SpecContext) {
			f := newFleet(ctx, 1, 1)
			f.hasAuthorities(ctx, "v1.14.1")
			old := map[string]map[string][]byte{}
			for _, name := range f.secretNames(ctx) {
				old[name] = f.secret(ctx, name)
			}
			f.startHub()
			op := f.create(ctx, "rotate", rotates(of)())
			Eventually(now(ctx, op)).Should(waitingFor("CredentialsConfirmed", ContainSubstring("ichor operation confirm rotate")))
			old["c-talos"] = f.bundleWith(ctx, of, oldAuthority(of))
			for _, name := range written {
				f.writes(ctx, name, old[name])
				again := "Secret " + name + " has credentials of the old authority again: somebody else has written it"
				Eventually(now(ctx, op)).Should(waitingFor("CredentialsConfirmed", again+"; pause the operation and resume it to have it written once more"))
				change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = ptr.To(true) })
				Eventually(now(ctx, op)).Should(bePaused("OperatorPaused", Not(BeEmpty())))
				change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = nil })
				Eventually(now(ctx, op)).Should(waitingFor("CredentialsConfirmed", ContainSubstring("ichor operation confirm rotate")))
			}
			first := map[v1alpha1.CAAuthority]string{talosCA: "cp1", kubernetesCA: "w1"}[of]
			stop := f.talos.HangBefore("ApplyConfig", f.addresses[first])
			confirm(ctx, op, of)
			Eventually(stop.Reached).Should(BeClosed())
			rotated := f.secret(ctx, "c-talos")
			f.writes(ctx, "c-talos", old["c-talos"])
			stop.Release()
			Eventually(now(ctx, op)).Should(waitingFor("RotationPass", ContainSubstring("Secret c-talos has credentials of the old authority again: somebody else has written it; put the new one there: it is in Secret ca-rotation-")))
			f.writes(ctx, "c-talos", rotated)
			Eventually(now(ctx, op)).Should(beCompleted())
			f.expectRotated(ctx, of)
		})
	}

	It("does not begin while a machine accepts a third authority, which it would leave there", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.hasAuthorities(ctx, "v1.14.1")
		third, err := credentials.NewAuthority(talosCA, time.Now())
		Expect(err).NotTo(HaveOccurred())
		before := f.talos.ConfigOf(f.addresses["w1"])
		have, err := machineconfig.ReadAuthorities(before.Active, talosCA)
		Expect(err).NotTo(HaveOccurred())
		made, err := machineconfig.WithAuthorities(before.Active, talosCA, have.Accepting(third.Certificate))
		Expect(err).NotTo(HaveOccurred())
		f.talos.Configure(f.addresses["w1"], talos.Config{Active: made, Persistent: made})
		f.startHub()
		op := f.create(ctx, "rotate", rotates(talosCA)())
		Eventually(now(ctx, op)).Should(waitingFor("RotationPass", "machine c-w1 accepts one more Talos authority, of SHA-256 "+
			machineconfig.Fingerprint(third.Certificate)+": take it out of acceptedCAs in its machine config first"))
		Expect(f.calls("ApplyConfig")).To(BeEmpty())
		f.talos.Configure(f.addresses["w1"], before)
		Eventually(now(ctx, op)).Should(waitingFor("CredentialsConfirmed", Not(BeEmpty())))
	})

	It("is deleted once it is over, or turned back, and not before", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.hasAuthorities(ctx, "v1.13.6")
		f.startHub()
		op := f.create(ctx, "rotate", rotates(talosCA)())
		Eventually(now(ctx, op)).Should(waitingFor("CredentialsConfirmed", Not(BeEmpty())))
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "DeletionBlocked", And(
			ContainSubstring("what it has changed on machines is not what it was"), ContainSubstring("turn it back: ichor operation turn-back rotate"))))
		Consistently(isGone(ctx, op), 200*time.Millisecond).Should(BeFalse())
		turnBack(ctx, op)
		Eventually(isGone(ctx, op)).Should(BeTrue())
		f.expectUnchanged(ctx, talosCA)
		Expect(f.movable(ctx)).To(BeTrue())
	})

	It("goes on after a step failed between two authorities, and nobody takes its lock meanwhile", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.hasAuthorities(ctx, "v1.13.6")
		f.annotations = confirmed(talosCA)
		stop := f.talos.HangBefore("ApplyConfig", f.addresses["w1"])
		f.startHub()
		op := f.create(ctx, "rotate", rotates(talosCA)())
		Eventually(stop.Reached).Should(BeClosed())
		swap := f.talos.HangBefore("ApplyConfig", f.addresses["w1"])
		stop.Release()
		Eventually(swap.Reached).Should(BeClosed())
		f.talos.FailNext("ApplyConfig", f.addresses["w1"], errNoSuchImage)
		swap.Release()
		Eventually(now(ctx, op)).Should(And(bePaused("StepFailed", Not(BeEmpty())), HaveField("Status.Stage", "TalosSwap")))
		other := f.create(ctx, "re", reboot("c-w1"))
		Eventually(now(ctx, other)).Should(bePaused("ClusterLockHeld", Not(BeEmpty())))
		retry(ctx, op)
		Eventually(now(ctx, op)).Should(beCompleted())
		f.expectRotated(ctx, talosCA)
		Eventually(now(ctx, other)).Should(beCompleted())
	})

	It("stands still while it is paused, and goes on where it was", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.hasAuthorities(ctx, "v1.13.6")
		f.startHub()
		op := f.create(ctx, "rotate", rotates(talosCA)())
		Eventually(now(ctx, op)).Should(waitingFor("CredentialsConfirmed", Not(BeEmpty())))
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = ptr.To(true) })
		Eventually(now(ctx, op)).Should(bePaused("OperatorPaused", Not(BeEmpty())))
		confirm(ctx, op, talosCA)
		given := f.calls("ApplyConfig")
		Consistently(func() []string { return f.calls("ApplyConfig") }, 200*time.Millisecond).Should(Equal(given))
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = nil })
		Eventually(now(ctx, op)).Should(beCompleted())
		f.expectRotated(ctx, talosCA)
	})

	It("does not begin where machines have different authorities already", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.hasAuthorities(ctx, "v1.13.6")
		foreign, err := credentials.NewAuthority(talosCA, time.Now())
		Expect(err).NotTo(HaveOccurred())
		f.issues("w1", talosCA, foreign)
		f.startHub()
		op := f.create(ctx, "rotate", rotates(talosCA)())
		Eventually(now(ctx, op)).Should(waitingFor("RotationPass", "machine c-w1 has another Talos authority than the other machines: a rotation by somebody else is half-way"))
		Expect(f.calls("ApplyConfig")).To(BeEmpty())
	})
})

// secretNames are the Secrets of the target.
func (f *fleet) secretNames(ctx context.Context) []string {
	GinkgoHelper()
	list := &corev1.SecretList{}
	Expect(admin.List(ctx, list, client.InNamespace(f.namespace))).To(Succeed())
	var names []string
	for _, secret := range list.Items {
		names = append(names, secret.Name)
	}
	return names
}

// expectAuthorityUntouched expects machines and credentials to know nothing but the old authority of an API.
func (f *fleet) expectAuthorityUntouched(ctx context.Context, of v1alpha1.CAAuthority) {
	GinkgoHelper()
	for name := range f.addresses {
		_, accepts, others := f.position(of, name)
		Expect([]bool{accepts, others}).To(Equal([]bool{true, false}), name)
	}
	_, certificate := f.trusted(ctx, of)
	Expect(credentials.SignedBy(certificate, oldAuthority(of).Certificate)).To(BeTrue())
}

// joins adds a worker with a config as a version of Talos makes it.
func (f *fleet) joins(ctx context.Context, name, address, version string, approval v1alpha1.Approval) {
	GinkgoHelper()
	if f.addresses[name] == "" { // Others read it all the time.
		f.addresses[name] = address
	}
	f.talos.Add(address, talos.Machine{
		Version: oldVersion, BootID: name + "-boot-0", UUID: "uuid-" + name, NodeName: name, Stage: talos.StageRunning, Ready: true, SchematicID: schematic,
	}, nil)
	config := generatedConfig(version, false)
	f.talos.Configure(address, talos.Config{Active: config, Persistent: config})
	f.kube.Set(kube.Node{Name: name, UUID: "uuid-" + name, BootID: name + "-boot-0", Ready: true})
	f.bootstrapKubelet(address)
	machine := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c-" + name, Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}},
		Spec:       v1alpha1.TalosMachineSpec{ClusterName: "c", Role: v1alpha1.WorkerRole, Address: address, UUID: "uuid-" + name, Approval: approval},
	}
	Expect(admin.Create(ctx, machine)).To(Succeed())
	machine.Status = v1alpha1.TalosMachineStatus{NodeName: name, TalosVersion: oldVersion, SchematicID: schematic, Platform: "metal", BootID: name + "-boot-0"}
	Expect(admin.Status().Update(ctx, machine)).To(Succeed())
}

// isLost is what people do about a machine that is gone for good: its Node goes, and its TalosMachine.
func (f *fleet) isLost(ctx context.Context, name string) {
	GinkgoHelper()
	f.kube.Remove(name)
	Expect(admin.Delete(ctx, f.machine(ctx, name))).To(Succeed())
	f.lost = append(f.lost, name)
}

// standing are the machines that nobody has said to be lost, by name with their addresses.
func (f *fleet) standing() map[string]string {
	standing := maps.Clone(f.addresses)
	maps.DeleteFunc(standing, func(name, _ string) bool { return slices.Contains(f.lost, name) })
	return standing
}

// issues gives a machine another authority, as somebody else's rotation would.
func (f *fleet) issues(name string, of v1alpha1.CAAuthority, authority credentials.KeyPair) {
	GinkgoHelper()
	own := f.talos.ConfigOf(f.addresses[name])
	made, err := machineconfig.WithAuthorities(own.Active, of, machineconfig.Authorities{Issuing: authority.Certificate})
	Expect(err).NotTo(HaveOccurred())
	f.talos.Configure(f.addresses[name], talos.Config{Active: made, Persistent: made})
}

// writes has somebody else write a Secret of the target.
func (f *fleet) writes(ctx context.Context, name string, data map[string][]byte) {
	GinkgoHelper()
	change(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}}, func(s *corev1.Secret) { s.Data = data })
}

// bundleWith is the bundle of the cluster with another authority.
func (f *fleet) bundleWith(ctx context.Context, of v1alpha1.CAAuthority, authority credentials.KeyPair) map[string][]byte {
	GinkgoHelper()
	bundle, err := credentials.ParseBundle(f.secret(ctx, "c-talos"))
	Expect(err).NotTo(HaveOccurred())
	pair := &x509.PEMEncodedCertificateAndKey{Crt: authority.Certificate, Key: authority.Key}
	if of == talosCA {
		bundle.Certs.OS = pair
	} else {
		bundle.Certs.K8s = pair
	}
	data, err := credentials.EncodeBundle(bundle)
	Expect(err).NotTo(HaveOccurred())
	return map[string][]byte{credentials.BundleKey: data}
}

// newAuthority is the fingerprint of the one authority that a machine accepts.
func (f *fleet) newAuthority(of v1alpha1.CAAuthority, name string) string {
	GinkgoHelper()
	have, err := machineconfig.ReadAuthorities(f.talos.ConfigOf(f.addresses[name]).Active, of)
	Expect(err).NotTo(HaveOccurred())
	Expect(all(have)).To(HaveLen(1), name)
	return machineconfig.Fingerprint(all(have)[0])
}
