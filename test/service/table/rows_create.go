// SPDX-License-Identifier: Apache-2.0

package table

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// refusal is something that speaks against an order, which the plan lists and the start refuses, in the same words.
type refusal struct {
	name    string
	given   []client.Object
	order   *pb.OperationOrder
	gate    string
	message string
	help    string
}

const inGit = "change it in Git (spec.talosVersion is v1.14.1), and when TalosCluster c1 asks for that, start with: " +
	"ichor upgrade talos v1.14.1 --namespace default --cluster c1"

// refused are the refusals. Cases B1, C15, C16, E5 and F8 are among them.
func refused() []refusal {
	marked := func(labels, annotations map[string]string) []client.Object {
		return []client.Object{cluster(func(c *v1alpha1.TalosCluster) {
			for key, value := range labels {
				c.Labels[key] = value
			}
			c.Annotations = annotations
		})}
	}
	two := []client.Object{machine("c1-cp-3", func(m *v1alpha1.TalosMachine) { m.Spec.Approval = "Pending" })}
	tracked := func(by string) string {
		return "TalosCluster c1 is kept by " + by + ", which would undo a change made here"
	}
	return []refusal{
		{
			"a second operation (E5)", []client.Object{Operation("c1-talos-x", Cluster)}, upgrade(), "OperationUnfinished",
			"operation c1-talos-x of cluster c1 is not finished (Pending)", "follow it with: ichor operation watch c1-talos-x, or delete it first",
		},
		{
			"a downgrade (C16)", nil, upgrade(to("v1.13.0")), "TalosVersionPath",
			"c1-cp-1: v1.13.0 is older than the running v1.13.9: a downgrade is no upgrade", "choose a version that follows the running one",
		},
		{
			"a downgrade of what nobody knows", everywhere(runs("")), upgrade(to("v1.13.0")), "TalosVersionPath",
			"TalosCluster c1 declares v1.13.9, and no machine tells what it runs: v1.13.0 may be a downgrade", "see why they are not known: ichor cluster get c1",
		},
		{
			"a version that is not final (C16)", nil, upgrade(to("v1.14.0-rc.1")), "TalosVersionPath",
			"c1-cp-1: v1.14.0-rc.1 is not a final version", "choose a version that follows the running one",
		},
		{
			"Kubernetes too old (C15)", []client.Object{cluster(func(c *v1alpha1.TalosCluster) { c.Status.KubernetesVersion = "v1.31.9" })}, upgrade(), "KubernetesPairing",
			"", "upgrade Kubernetes first, or choose another version of Talos",
		},
		{
			"two control planes (B1)", two, upgrade(), "Quorum",
			"two control planes: etcd loses its quorum while either of them reboots", "add a third control plane, or remove one",
		},
		{
			"a reboot of one of two control planes (B1)", two, reboot("c1-cp-1"), "Quorum",
			"two control planes: etcd loses its quorum while either of them reboots", "add a third control plane, or remove one",
		},
		{
			"a machine that nobody knows (A17)", nil, reboot("w-9"), "MachineKnown",
			`TalosMachine "w-9" is not an approved machine of cluster c1`, "ichor machine list --cluster c1",
		},
		{
			"a shutdown of one of two control planes (B1)", two, nodeOrder("c1-cp-1", "Shutdown"), "Quorum",
			"two control planes: etcd loses its quorum once either of them is off", "add a third control plane, or remove one",
		},
		{
			"a reset of one of two control planes (B1)", two, nodeOrder("c1-cp-1", "Reset"), "Quorum",
			"two control planes: etcd loses its quorum without either of them", "add a third control plane, or remove one",
		},
		{
			"a defragmentation of two members (B1)", two, nodeOrder("", "EtcdDefrag"), "Quorum",
			"two control planes: etcd has no quorum while either of its members is defragmented", "add a third control plane, or remove one",
		},
		{
			"a leadership that no worker has", nil, nodeOrder("c1-w-1", "EtcdForfeitLeadership"), "EtcdMember",
			"c1-w-1 is a worker: it has no etcd member", "name a control plane; see: ichor machine list --cluster c1",
		},
		{
			"alarms after one member of several", nil, nodeOrder("c1-cp-1", "EtcdDefrag", func(n *pb.NodeParameters) { n.Alarms = "Disarm" }), "EtcdMember",
			"alarms are disarmed once all 3 members are defragmented, and not after c1-cp-1 alone", "leave out the machine, or the alarms",
		},
		{
			"no version anywhere", []client.Object{cluster(asks(""))}, upgrade(to("")), "TargetDeclared",
			"TalosCluster c1 declares no talosVersion", "ichor upgrade talos VERSION --cluster c1",
		},
		{
			"kept by Argo CD, by annotation", marked(nil, map[string]string{"argocd.argoproj.io/tracking-id": "fleet:ichor.maesh.dev/TalosCluster:default/c1"}),
			upgrade(), "SpecTracked", tracked(`Application "fleet" of Argo CD`), inGit,
		},
		{
			"kept by Argo CD, by label", marked(map[string]string{"app.kubernetes.io/instance": "fleet", "app.kubernetes.io/managed-by": "argocd"}, nil),
			upgrade(), "SpecTracked", tracked(`Application "fleet" of Argo CD`), inGit,
		},
		{
			"what somebody else owns", []client.Object{cluster(func(c *v1alpha1.TalosCluster) { c.Annotations = map[string]string{managerAnnotation: "kubectl-edit"} })},
			upgrade(), "SpecOwned", `spec.talosVersion of TalosCluster c1 belongs to field manager "kubectl-edit"`,
			"set it where it was set before, or hand it over with: kubectl patch taloscluster c1 -n default --type merge --field-manager ichor-operations " +
				`-p '{"spec":{"talosVersion":"v1.14.1"}}'; then start again`,
		},
		{
			"kept by a Kustomization of Flux", marked(map[string]string{
				"kustomize.toolkit.fluxcd.io/name": "clusters", "kustomize.toolkit.fluxcd.io/namespace": "flux-system",
			}, nil), upgrade(), "SpecTracked", tracked(`Kustomization "flux-system/clusters" of Flux`), inGit,
		},
		{
			"kept by a HelmRelease of Flux", marked(map[string]string{"helm.toolkit.fluxcd.io/name": "clusters", "helm.toolkit.fluxcd.io/namespace": "flux-system"}, nil),
			upgrade(), "SpecTracked", tracked(`HelmRelease "flux-system/clusters" of Flux`), inGit,
		},
	}
}

// planRefusals are plans that list a refusal.
func planRefusals() []Row {
	var rows []Row
	for _, r := range refused() {
		rows = append(rows, Row{
			Name: "plan/refuses/" + r.name, Given: given(r.given...), Call: plan(r.order),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				refusals := planOf(answer).GetRefusals()
				g.Expect(refusals).To(gomega.HaveLen(1))
				g.Expect(refusals[0].GetGate()).To(gomega.Equal(r.gate))
				g.Expect(refusals[0].GetMessage()).To(gomega.ContainSubstring(r.message))
				g.Expect(refusals[0].GetHelp()).To(gomega.Equal(r.help))
				g.Expect(refusals[0].GetOverridable()).To(gomega.Equal(r.gate == "KubernetesPairing"))
			},
		})
	}
	return rows
}

// createRefusals are starts that are refused before anything is written, not even on trial.
func createRefusals() []Row {
	var rows []Row
	for _, r := range refused() {
		message := fmt.Sprintf("refused: %s: %s (%s)", r.gate, r.message, r.help)
		if r.gate == "KubernetesPairing" {
			message = "refused: KubernetesPairing: Talos v1.14.1 does not support the running Kubernetes v1.31.9: " +
				"Talos v1.14 goes with Kubernetes v1.32 to v1.37 (upgrade Kubernetes first, or choose another version of Talos)"
		}
		rows = append(rows, Row{
			Name: "create/refuses/" + r.name, Given: given(r.given...), Call: create(r.order),
			Code: connect.CodeFailedPrecondition, Message: message, Gates: []string{r.gate},
		})
	}
	return rows
}

// created is the answer of a start.
func created(message proto.Message) *pb.CreateOperationResponse {
	return message.(*pb.CreateOperationResponse)
}

// read reads an object of the world.
func read[T client.Object](g gomega.Gomega, w *World, object T, name string) T {
	g.Expect(w.Client.Get(context.Background(), client.ObjectKey{Namespace: Namespace, Name: name}, object)).To(gomega.Succeed())
	return object
}

var all = []string{"dry-run create TalosOperation", "apply TalosCluster", "create TalosOperation"}

// keyed are the names of operations under the key of the table.
const (
	keyedUpgrade = "c1-talos-be29745469"
	keyedReboot  = "c1-node-be29745469"
)

// creates are starts, and how far they come.
func creates() []Row {
	expects := func(version string) func(*pb.CreateOperationRequest) {
		return func(r *pb.CreateOperationRequest) { r.ExpectedTarget = &pb.OperationTarget{TalosVersion: version} }
	}
	validate := func(r *pb.CreateOperationRequest) { r.ValidateOnly = true }
	return slices.Concat(createRefusals(), []Row{
		{
			Name: "create/an upgrade", Call: create(upgrade(func(o *pb.OperationOrder) { o.MaxUnavailable = "2" }), expects(wanted)), Writes: all,
			Check: func(g gomega.Gomega, answer proto.Message, w *World) {
				g.Expect(created(answer).GetOperation().GetRef().GetName()).To(gomega.Equal(keyedUpgrade))
				g.Expect(created(answer).GetOperation().GetCreatedBy()).To(gomega.Equal(User))
				g.Expect(created(answer).GetWroteSpec()).To(gomega.BeTrue())
				g.Expect(created(answer).GetExisted()).To(gomega.BeFalse())
				g.Expect(read(g, w, &v1alpha1.TalosCluster{}, Cluster).Spec).To(gomega.Equal(v1alpha1.TalosClusterSpec{TalosVersion: wanted}))
				op := read(g, w, &v1alpha1.TalosOperation{}, keyedUpgrade)
				g.Expect(op.Spec.ExpectedTarget).To(gomega.HaveValue(gomega.Equal(v1alpha1.OperationTarget{TalosVersion: wanted})))
				g.Expect(op.Spec.MaxUnavailable.IntValue()).To(gomega.Equal(2))
				g.Expect(op.Annotations).To(gomega.Equal(map[string]string{"ichor.maesh.dev/created-by": User}))
				g.Expect(op.Labels).To(gomega.Equal(map[string]string{"cluster.x-k8s.io/cluster-name": Cluster, "ichor.maesh.dev/idempotency-key": "key-1"}))
			},
		},
		{
			Name: "create/what nobody expected sees the plan's target", Call: create(upgrade()), Writes: all,
			Check: func(g gomega.Gomega, _ proto.Message, w *World) {
				g.Expect(read(g, w, &v1alpha1.TalosOperation{}, keyedUpgrade).Spec.ExpectedTarget).To(gomega.HaveValue(gomega.Equal(v1alpha1.OperationTarget{TalosVersion: wanted})))
			},
		},
		{
			Name: "create/without a key", Call: create(upgrade(), func(r *pb.CreateOperationRequest) { r.IdempotencyKey = "" }), Writes: all,
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				g.Expect(created(answer).GetOperation().GetRef().GetName()).To(gomega.HavePrefix("c1-talos-"))
				created(answer).GetOperation().Ref, created(answer).GetOperation().Uid = nil, "" // They differ from call to call.
			},
		},
		{
			Name: "create/a reboot writes no spec", Call: create(reboot("w-1")), Writes: []string{all[0], all[2]},
			Check: func(g gomega.Gomega, answer proto.Message, w *World) {
				g.Expect(created(answer).GetWroteSpec()).To(gomega.BeFalse())
				op := read(g, w, &v1alpha1.TalosOperation{}, created(answer).GetOperation().GetRef().GetName())
				g.Expect(op.Name).To(gomega.Equal(keyedReboot))
				g.Expect(op.Spec.Node).To(gomega.HaveValue(gomega.Equal(v1alpha1.NodeParameters{Machine: "c1-w-1", Action: "Reboot"})))
				g.Expect(op.Spec.ExpectedTarget).To(gomega.BeNil())
			},
		},
		{
			Name: "create/what the spec asks for already", Given: given(cluster(asks(wanted))), Call: create(upgrade(to(""))), Writes: []string{all[0], all[2]},
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				g.Expect(created(answer).GetWroteSpec()).To(gomega.BeFalse())
			},
		},
		{
			Name: "create/what Git asks for already, of a cluster that Flux keeps", Given: given(cluster(func(c *v1alpha1.TalosCluster) {
				c.Spec.TalosVersion, c.Labels["kustomize.toolkit.fluxcd.io/name"] = wanted, "clusters"
			})), Call: create(upgrade()), Writes: []string{all[0], all[2]},
		},
		{
			Name: "create/everything is there", Given: given(append(everywhere(runs(wanted)), cluster(asks(wanted)))...), Call: create(upgrade()),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				g.Expect(created(answer).GetNothingToDo()).To(gomega.BeTrue())
				g.Expect(created(answer).GetOperation()).To(gomega.BeNil())
			},
		},
		{
			Name: "create/what an earlier start applied stays applied", Writes: slices.Concat(all, []string{"delete TalosOperation"}, all),
			Call: func(ctx context.Context, c Clients) (proto.Message, error) {
				_, err := create(upgrade(func(o *pb.OperationOrder) { o.Target.SchematicId = strings.Repeat("a", 64) }))(ctx, c)
				if err != nil {
					return nil, err
				}
				if _, err := remove(keyedUpgrade, false, "")(ctx, c); err != nil {
					return nil, err
				}
				return create(upgrade(to("v1.13.10")))(ctx, c)
			},
			Check: func(g gomega.Gomega, _ proto.Message, w *World) {
				g.Expect(read(g, w, &v1alpha1.TalosCluster{}, Cluster).Spec).To(gomega.Equal(v1alpha1.TalosClusterSpec{
					TalosVersion: "v1.13.10", SchematicID: strings.Repeat("a", 64),
				}))
			},
		},
		{
			Name: "create/validate only", Call: create(upgrade(), validate), Writes: []string{all[0], "dry-run apply TalosCluster"},
			Check: func(g gomega.Gomega, answer proto.Message, w *World) {
				g.Expect(created(answer).GetOperation().GetRef().GetName()).To(gomega.Equal(keyedUpgrade))
				g.Expect(read(g, w, &v1alpha1.TalosCluster{}, Cluster).Spec.TalosVersion).To(gomega.Equal(running))
			},
		},
		{
			Name: "create/validate only what is refused", Call: create(upgrade(to("v1.13.0")), validate), Code: connect.CodeFailedPrecondition,
			Message: "refused: TalosVersionPath: c1-cp-1: v1.13.0 is older than the running v1.13.9: a downgrade is no upgrade (choose a version that follows the running one)",
			Gates:   []string{"TalosVersionPath"},
		},
		{
			Name: "create/refuses what nobody saw", Call: create(upgrade(), expects("v1.14.0")), Code: connect.CodeFailedPrecondition,
			Message: "refused: TargetExpected: cluster c1 would be brought to talos_version v1.14.1, and the request expects talos_version v1.14.0 " +
				"(look at the plan again: ichor upgrade talos v1.14.1 --namespace default --cluster c1 --dry-run)",
			Gates: []string{"TargetExpected"},
		},
		invalid("create/refuses an expectation that is no version (F6)", `expected_target.talos_version "1.14": version "1.14" has no patch level: did you mean 1.14.0?`,
			create(upgrade(), expects("1.14"))),
	}, contracts(), partlyDone())
}

// contracted is a cluster that makes configs by the rules of Talos v1.13, which a field manager has said.
func contracted(manager string) func() *World {
	return given(cluster(func(c *v1alpha1.TalosCluster) {
		c.Spec.MachineConfig = &v1alpha1.MachineConfigSpec{VersionContract: "v1.13"}
		if manager != "" {
			c.Annotations = map[string]string{managerAnnotation: manager}
		}
	}))
}

// contracts are starts on clusters whose config has a version contract: it goes along with the version of Talos, in the same write.
func contracts() []Row {
	becomes := func(spec v1alpha1.TalosClusterSpec) func(gomega.Gomega, proto.Message, *World) {
		return func(g gomega.Gomega, _ proto.Message, w *World) {
			g.Expect(read(g, w, &v1alpha1.TalosCluster{}, Cluster).Spec).To(gomega.Equal(spec))
		}
	}
	made := func(contract string) *v1alpha1.MachineConfigSpec {
		return &v1alpha1.MachineConfigSpec{VersionContract: contract}
	}
	warns := func(message string) func(gomega.Gomega, proto.Message, *World) {
		return func(g gomega.Gomega, answer proto.Message, _ *World) {
			var messages []string
			for _, warning := range planOf(answer).GetWarnings() {
				if warning.GetCode() == "VersionContract" {
					messages = append(messages, warning.GetMessage())
				}
			}
			g.Expect(messages).To(gomega.Equal([]string{message}))
			g.Expect(len(message)).To(gomega.BeNumerically("<=", 256))
		}
	}
	return []Row{
		{
			Name: "create/the version contract goes along", Given: contracted(""), Call: create(upgrade()), Writes: all,
			Check: becomes(v1alpha1.TalosClusterSpec{TalosVersion: wanted, MachineConfig: made("v1.14")}),
		},
		{
			Name: "create/the version contract of the same minor stays", Given: contracted(""), Call: create(upgrade(to("v1.13.10"))), Writes: all,
			Check: becomes(v1alpha1.TalosClusterSpec{TalosVersion: "v1.13.10", MachineConfig: made("v1.13")}),
		},
		{
			Name: "create/a version contract that was applied stays applied", Given: contracted(""), Writes: slices.Concat(all, []string{"delete TalosOperation"}, all),
			Call: func(ctx context.Context, c Clients) (proto.Message, error) {
				if _, err := create(upgrade())(ctx, c); err != nil {
					return nil, err
				}
				if _, err := remove(keyedUpgrade, false, "")(ctx, c); err != nil {
					return nil, err
				}
				return create(upgrade(to("v1.14.2")))(ctx, c)
			},
			Check: becomes(v1alpha1.TalosClusterSpec{TalosVersion: "v1.14.2", MachineConfig: made("v1.14")}),
		},
		{
			Name: "create/no spec is written for a version contract alone", Call: create(upgrade()), Writes: []string{all[0], all[2]},
			Given: given(cluster(func(c *v1alpha1.TalosCluster) {
				c.Spec = v1alpha1.TalosClusterSpec{TalosVersion: wanted, MachineConfig: made("v1.13")}
			})),
			Check: becomes(v1alpha1.TalosClusterSpec{TalosVersion: wanted, MachineConfig: made("v1.13")}),
		},
		{
			Name: "create/a version contract that Git keeps", Call: create(upgrade()), Code: connect.CodeFailedPrecondition, Gates: []string{"SpecTracked"},
			Given: given(cluster(func(c *v1alpha1.TalosCluster) {
				c.Spec.MachineConfig, c.Labels["kustomize.toolkit.fluxcd.io/name"] = made("v1.13"), "clusters"
			})),
			Message: `refused: SpecTracked: TalosCluster c1 is kept by Kustomization "clusters" of Flux, which would undo a change made here ` +
				"(change it in Git (spec.talosVersion is v1.14.1, spec.machineConfig.versionContract is v1.14), and when TalosCluster c1 asks for that, " +
				"start with: ichor upgrade talos v1.14.1 --namespace default --cluster c1)",
		},
		{
			Name: "plan/the version contract goes along", Given: contracted(""), Call: plan(upgrade()),
			Check: warns("spec.machineConfig.versionContract goes from v1.13 to v1.14 with it: configs for new machines are made by the rules of Talos v1.14 from then on"),
		},
		{
			Name: "plan/the version contract of somebody else", Given: contracted("kubectl-edit"), Call: plan(upgrade()),
			Check: warns(`spec.machineConfig.versionContract stays v1.13, since it belongs to field manager "kubectl-edit": set it to v1.14 there once all machines run Talos v1.14.1`),
		},
	}
}

// failing is a world in which one write fails.
func failing(write string, err error) func() *World {
	return with(func(w *World) {
		w.Fails = func(tried string) error {
			if tried == write {
				return err
			}
			return nil
		}
	})
}

// partlyDone are starts that come only so far.
func partlyDone() []Row {
	away := apierrors.NewServiceUnavailable("no answer")
	gone := apierrors.NewConflict(schema.GroupResource{Group: "ichor.maesh.dev", Resource: "talosclusters"}, Cluster, errors.New("it was changed"))
	return []Row{
		{
			Name: "create/the first write fails", Given: failing(all[1], away), Call: create(upgrade()), Writes: all[:2], Code: connect.CodeUnavailable,
			Message: "writing the spec of TalosCluster c1, nothing was started: no answer",
		},
		{
			Name: "create/the spec is changed all the time", Given: failing(all[1], gone), Call: create(upgrade()), Code: connect.CodeAborted,
			Writes:  append([]string{all[0]}, slices.Repeat([]string{all[1]}, 5)...),
			Message: "the spec of TalosCluster c1 was changed meanwhile, and nothing was started: look at it again, and repeat the request",
		},
		{
			Name: "create/the second write fails", Given: failing(all[2], away), Call: create(upgrade()), Writes: all, Code: connect.CodeUnavailable,
			Message: "of TalosCluster c1, spec.talosVersion is v1.14.1 now, but no operation was created: creating the operation: no answer; " +
				"to finish it, repeat the request, or run: ichor upgrade talos v1.14.1 --namespace default --cluster c1",
			Partly: &pb.PartlyDone{
				Done: "of TalosCluster c1, spec.talosVersion is v1.14.1 now", Missing: "no operation was created",
				Finish: "repeat the request, or run: ichor upgrade talos v1.14.1 --namespace default --cluster c1",
			},
		},
		{
			Name: "create/the second write fails, and the same again finishes it", Given: with(func(w *World) {
				failed := false
				w.Fails = func(tried string) error {
					if tried == all[2] && !failed {
						failed = true
						return away
					}
					return nil
				}
			}), Call: twice(create(upgrade()), create(upgrade())), Writes: slices.Concat(all, []string{all[0], all[2]}),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				g.Expect(created(answer).GetExisted()).To(gomega.BeFalse())
				g.Expect(created(answer).GetWroteSpec()).To(gomega.BeFalse())
			},
		},
	}
}

// twice sends one request after the other, whatever the first answers.
func twice(first, second func(context.Context, Clients) (proto.Message, error)) func(context.Context, Clients) (proto.Message, error) {
	return func(ctx context.Context, c Clients) (proto.Message, error) {
		_, _ = first(ctx, c)
		return second(ctx, c)
	}
}

// keys are requests that are sent twice.
func keys() []Row {
	other := "idempotency_key \"key-1\" stands for operation c1-talos-be29745469 (kind talos on cluster c1: talos_version v1.14.1) already, and the request is for "
	const help = "; use a key of its own for each order"
	key := func(text string) func(*pb.CreateOperationRequest) {
		return func(r *pb.CreateOperationRequest) { r.IdempotencyKey = text }
	}
	return []Row{
		{
			Name: "key/the same twice is one operation", Call: twice(create(upgrade()), create(upgrade())), Writes: all,
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				g.Expect(created(answer).GetExisted()).To(gomega.BeTrue())
				g.Expect(created(answer).GetWroteSpec()).To(gomega.BeFalse())
				g.Expect(created(answer).GetOperation().GetRef().GetName()).To(gomega.Equal(keyedUpgrade))
			},
		},
		{
			Name: "key/another version", Call: twice(create(upgrade()), create(upgrade(to("v1.13.10")))), Writes: all, Code: connect.CodeAlreadyExists,
			Message: other + "kind talos on cluster c1: talos_version v1.13.10" + help,
		},
		{
			Name: "key/another budget", Writes: all, Code: connect.CodeAlreadyExists,
			Call:    twice(create(upgrade()), create(upgrade(func(o *pb.OperationOrder) { o.MaxUnavailable = "2" }))),
			Message: other + "kind talos on cluster c1: talos_version v1.14.1, at most 2 workers at once" + help,
		},
		{
			Name: "key/another kind", Call: twice(create(upgrade()), create(reboot("c1-w-1"))), Writes: all, Code: connect.CodeAlreadyExists,
			Message: other + "kind node on cluster c1: Reboot of c1-w-1" + help,
		},
		invalid("key/no name", `idempotency_key "Key 1": 1 to 63 lower-case letters, digits and dashes, no dash first or last`, create(upgrade(), key("Key 1"))),
		invalid("key/too long", `idempotency_key "`+strings.Repeat("k", 64)+`": 1 to 63 lower-case letters, digits and dashes, no dash first or last`,
			create(upgrade(), key(strings.Repeat("k", 64)))),
	}
}

// rights are requests of users who may not: nothing is written, not even on trial.
func rights() []Row {
	forbidden := func(write string) string {
		kind := write[strings.LastIndex(write, " ")+1:]
		return fmt.Sprintf("%ss.ichor.maesh.dev is forbidden: user %q may only read", strings.ToLower(kind), User)
	}
	readOnly := with((*World).Forbid)
	return []Row{
		{
			Name: "rights/an upgrade without start", Given: with(denied("start", "talos")), Call: create(upgrade()), Code: connect.CodePermissionDenied,
			Message: User + " may not start talosoperations/talos in namespace default",
		},
		{
			Name: "rights/a reboot without start", Given: with(denied("start", "node-reboot")), Call: create(reboot("c1-w-1")), Code: connect.CodePermissionDenied,
			Message: User + " may not start talosoperations/node-reboot in namespace default",
		},
		{
			Name: "rights/an override without override", Given: with(denied("override", "")), Call: create(upgrade(override("WorkersAvailable", "x"))),
			Code: connect.CodePermissionDenied, Message: User + " may not override talosoperations in namespace default",
		},
		{
			Name: "rights/no override needs no override", Given: with(denied("override", "")), Call: create(upgrade()), Writes: all,
		},
		{
			Name: "rights/who may not create operations changes no spec", Given: readOnly, Call: create(upgrade()), Writes: all[:1], Code: connect.CodePermissionDenied,
			Message: "the operation would not be accepted, nothing was changed: " + forbidden(all[0]),
		},
		{
			Name: "rights/a plan needs none of them", Given: with(func(w *World) { w.Forbid(); denied("start", "talos")(w) }), Call: plan(upgrade()),
		},
		{
			Name: "rights/a retry without start", Given: with(denied("start", "talos"), failed("c1-talos-x")), Call: retry(),
			Code: connect.CodePermissionDenied, Message: User + " may not start talosoperations/talos in namespace default",
		},
		{
			Name: "rights/force without override", Given: with(denied("override", ""), Operation("c1-talos-x", Cluster)), Call: remove("c1-talos-x", true, "it hangs"),
			Code: connect.CodePermissionDenied, Message: User + " may not override talosoperations in namespace default",
		},
		{
			Name: "rights/a hold", Given: readOnly, Call: hold("c1-w-1", true, "disk"), Writes: []string{"patch TalosMachine"}, Code: connect.CodePermissionDenied,
			Message: "changing the hold of machine c1-w-1: " + forbidden("patch TalosMachine"),
		},
	}
}

// idle are requests of users who may not, about what is so already: nobody is told that it is done who may not do it.
func idle() []Row {
	const name = "c1-talos-x"
	paused := changed(Operation(name, Cluster), func(op *v1alpha1.TalosOperation) { op.Spec.Paused = new(true) })
	dying := changed(settling(), func(op *v1alpha1.TalosOperation) { op.DeletionTimestamp = new(metav1.NewTime(now)) })
	later := changed(paused.DeepCopy(), func(op *v1alpha1.TalosOperation) { op.Spec.Kind = v1alpha1.CNIKind })
	mayNot := func(what string) string { return User + " may not " + what + " in namespace default" }
	var rows []Row
	for _, row := range []struct {
		name, verb, subresource string
		given                   []client.Object
		call                    func(context.Context, Clients) (proto.Message, error)
		message                 string
	}{
		{"pause what is paused", "patch", "", []client.Object{paused}, pause(name, true), mayNot("patch talosoperations")},
		{"go on with what goes on", "patch", "", []client.Object{Operation(name, Cluster)}, pause(name, false), mayNot("patch talosoperations")},
		{"retry what did not fail", "patch", "", []client.Object{Operation(name, Cluster)}, retry(), mayNot("patch talosoperations")},
		{"hold what is not", "patch", "", nil, hold("c1-w-1", false, ""), mayNot("patch talosmachines")},
		{"approve what is", "patch", "", nil, approve("c1-w-1"), mayNot("patch talosmachines")},
		{"forget while an operation settles", "delete", "", []client.Object{own(), dying}, forget(Cluster), mayNot("delete talosclusters")},
		{"go on without start", "start", "talos", []client.Object{paused.DeepCopy()}, pause(name, false), mayNot("start talosoperations/talos")},
		{"delete without start", "start", "talos", []client.Object{Operation(name, Cluster)}, remove(name, false, ""), mayNot("start talosoperations/talos")},
		{"force without delete", "delete", "", []client.Object{Operation(name, Cluster)}, remove(name, true, "it hangs"), mayNot("delete talosoperations")},
		{"go on with a kind of a newer hub", "start", "cni", []client.Object{later}, pause(name, false), mayNot("start talosoperations/cni")},
	} {
		rows = append(rows, Row{
			Name: "rights/" + row.name, Given: with(denied(row.verb, row.subresource), row.given...), Call: row.call,
			Code: connect.CodePermissionDenied, Message: row.message,
		})
	}
	return append(rows, Row{
		Name: "rights/pause without start", Given: with(denied("start", "talos"), Operation(name, Cluster)), Call: pause(name, true), Writes: patched,
	})
}
