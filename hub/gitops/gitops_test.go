// SPDX-License-Identifier: Apache-2.0

package gitops_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/hack/kustomize"
	"ichor.maesh.dev/hub/hub/gitops"
	"ichor.maesh.dev/hub/providers/capi"
)

// lived is an object's metadata after some time on a management API, with marks of everything that marks objects.
func lived(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: "team-a", UID: "u", ResourceVersion: "7", Generation: 3, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0)),
		Finalizers:      []string{"cluster.cluster.x-k8s.io"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Cluster", Name: "prod-1", UID: "o"}},
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "ichor-hub"}},
		Labels: map[string]string{
			clusterv1.ClusterNameLabel: "prod-1", "env": "prod", "example.com/rack": "7", "kustomize.toolkit.fluxcd.io/name": "fleet", "app.kubernetes.io/instance": "fleet",
		},
		Annotations: map[string]string{
			"example.com/owner": "team-a", "kubectl.kubernetes.io/last-applied-configuration": "{}", "argocd.argoproj.io/tracking-id": "x",
			v1alpha1.OwnerIDAnnotation: "id", v1alpha1.UnsafeAnnotation: "op", v1alpha1.MembersApprovedAtAnnotation: "t", v1alpha1.BlockMoveAnnotation: "",
			"cluster.x-k8s.io/paused": "",
		},
	}
}

func machine(name string, role v1alpha1.MachineRole, change func(*v1alpha1.TalosMachine)) v1alpha1.TalosMachine {
	m := v1alpha1.TalosMachine{
		ObjectMeta: lived(name),
		Spec:       v1alpha1.TalosMachineSpec{ClusterName: "prod-1", Role: role, Address: "192.0.2.1", UUID: "uuid-" + name, Approval: v1alpha1.Approved},
		Status:     v1alpha1.TalosMachineStatus{NodeName: name, TalosVersion: "v1.13.9"},
	}
	change(&m)
	return m
}

// prod is a cluster in the middle of life.
func prod() targets.Facts {
	same := func(*v1alpha1.TalosMachine) {}
	return targets.Facts{
		Cluster: &v1alpha1.TalosCluster{
			ObjectMeta: lived("prod-1"),
			Spec: v1alpha1.TalosClusterSpec{
				TalosVersion: "v1.14.1", KubernetesVersion: "v1.36.3", ControlPlaneEndpoint: &v1alpha1.APIEndpoint{Host: "192.0.2.10", Port: 6443},
				MachineConfig:      &v1alpha1.MachineConfigSpec{VersionContract: "v1.14", Patches: []v1alpha1.MachineConfigPatch{{Name: "time", Patch: "machine:\n  time:\n    disabled: false\n"}}},
				MaintenanceWindows: []v1alpha1.MaintenanceWindow{{Schedule: "0 22 * * 1-5", DurationSeconds: 14400, TimeZone: "Europe/Berlin"}},
			},
			Status: v1alpha1.TalosClusterStatus{LockHolder: "somebody", KubernetesVersion: "v1.35.2"},
		},
		CAPICluster: &clusterv1.Cluster{
			ObjectMeta: lived("prod-1"),
			Spec: clusterv1.ClusterSpec{
				Paused: ptr.To(true), InfrastructureRef: capi.Infrastructure("prod-1"), ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "192.0.2.10", Port: 6443},
			},
		},
		Machines: []v1alpha1.TalosMachine{
			machine("prod-1-worker-1", v1alpha1.WorkerRole, func(m *v1alpha1.TalosMachine) {
				m.Labels[v1alpha1.UpgradeOrderLabel] = "1"
				m.Annotations[v1alpha1.UpgradeHoldAnnotation] = "disk swap"
				m.Spec.Removal = &v1alpha1.RemovalSpec{Reason: "old"}
			}),
			machine("prod-1-cp-1", v1alpha1.ControlPlaneRole, same),
			machine("prod-1-worker-2", v1alpha1.WorkerRole, func(m *v1alpha1.TalosMachine) { m.Spec.Approval = v1alpha1.ApprovalPending }),
		},
	}
}

// files are those of an export, by their paths.
func files(t *testing.T, facts targets.Facts) map[string][]byte {
	t.Helper()
	export, err := gitops.Of(facts)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	found := map[string][]byte{}
	for _, file := range export.Files {
		found[file.Path] = file.Content
	}
	return found
}

// What is written, word by word. UPDATE_GOLDEN=1 writes it.
func TestWhatIsWritten(t *testing.T) {
	g := NewWithT(t)
	made := files(t, prod())
	for path, content := range made {
		golden := filepath.Join("testdata", filepath.FromSlash(path))
		if os.Getenv("UPDATE_GOLDEN") != "" {
			g.Expect(os.MkdirAll(filepath.Dir(golden), 0o755)).To(Succeed())
			g.Expect(os.WriteFile(golden, content, 0o644)).To(Succeed())
		}
		want, err := os.ReadFile(golden)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(content)).To(Equal(string(want)), path)
		g.Expect(gitops.Written(content)).To(BeTrue(), path)
	}
	g.Expect(slices.Sorted(maps.Keys(made))).To(Equal([]string{
		"team-a/prod-1/cluster.yaml", "team-a/prod-1/kustomization.yaml", "team-a/prod-1/machines.yaml", "team-a/prod-1/taloscluster.yaml",
	}))
}

func TestWhatIsLeftOutIsTold(t *testing.T) {
	g := NewWithT(t)
	export, err := gitops.Of(prod())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(export.Remarks).To(Equal([]string{"machine prod-1-worker-2 is left out until it is approved: ichor machine approve prod-1-worker-2"}))

	adopted := prod()
	adopted.CAPICluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "TalosControlPlane", Name: "prod-1"}
	export, err = gitops.Of(adopted)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(export.Remarks).To(ContainElement("Cluster team-a/prod-1 is Cluster API's providers': it is left to whatever made it"))
	g.Expect(files(t, adopted)).NotTo(HaveKey("team-a/prod-1/cluster.yaml"))
	g.Expect(string(files(t, adopted)["team-a/prod-1/kustomization.yaml"])).NotTo(ContainSubstring("cluster.yaml\n- cluster"))

	alone := prod()
	alone.CAPICluster, alone.Machines = nil, nil
	g.Expect(slices.Sorted(maps.Keys(files(t, alone)))).To(Equal([]string{"team-a/prod-1/kustomization.yaml", "team-a/prod-1/taloscluster.yaml"}))
}

// What life does to objects changes nothing of what is written; what people change does.
func TestTheSameClusterGivesTheSameFiles(t *testing.T) {
	g := NewWithT(t)
	before := files(t, prod())
	later := prod()
	slices.Reverse(later.Machines)
	later.Cluster.ResourceVersion, later.Cluster.Status.LockHolder = "8", "somebody else"
	later.Cluster.Annotations[v1alpha1.UnsafeAnnotation] = "another"
	later.Machines[1].Status.TalosVersion = "v1.14.1"
	g.Expect(files(t, later)).To(Equal(before))

	later.Cluster.Spec.TalosVersion = "v1.14.2"
	changed := files(t, later)
	for path, content := range changed {
		g.Expect(bytes.Equal(content, before[path])).To(Equal(!strings.HasSuffix(path, "taloscluster.yaml")), path)
	}
}

// What is written renders, with the annotations that keep Argo CD and Flux from deleting it, and to these three kinds alone.
func TestItRenders(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	for path, content := range files(t, prod()) {
		file := filepath.Join(dir, filepath.FromSlash(path))
		g.Expect(os.MkdirAll(filepath.Dir(file), 0o755)).To(Succeed())
		g.Expect(os.WriteFile(file, content, 0o644)).To(Succeed())
	}
	objects, err := kustomize.Objects(filepath.Join(dir, "team-a", "prod-1"))
	g.Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, object := range objects {
		names = append(names, object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName())
		g.Expect(object.GetAnnotations()).To(And(
			HaveKeyWithValue("kustomize.toolkit.fluxcd.io/prune", "disabled"), HaveKeyWithValue("argocd.argoproj.io/sync-options", "Prune=false,Delete=false"),
		))
		g.Expect(object.Object).NotTo(HaveKey("status"))
	}
	g.Expect(names).To(ConsistOf("Cluster team-a/prod-1", "TalosCluster team-a/prod-1", "TalosMachine team-a/prod-1-cp-1", "TalosMachine team-a/prod-1-worker-1"))
}

// What the examples let Argo CD hold is what an export has.
func TestTheExampleOfArgoCDHoldsWhatIsExported(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile("../../examples/gitops/argocd/project.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	var project struct {
		Spec struct {
			ClusterResourceWhitelist   []any
			NamespaceResourceWhitelist []struct{ Group, Kind string }
		}
	}
	g.Expect(yaml.Unmarshal(content, &project)).To(Succeed())
	g.Expect(project.Spec.ClusterResourceWhitelist).To(BeEmpty())
	var allowed []string
	for _, kind := range project.Spec.NamespaceResourceWhitelist {
		allowed = append(allowed, kind.Kind+"."+kind.Group)
	}
	exported := map[string]bool{}
	for path, content := range files(t, prod()) {
		if strings.HasSuffix(path, gitops.KustomizationFile) {
			continue
		}
		objects, err := kustomize.Read(content)
		g.Expect(err).NotTo(HaveOccurred())
		for _, object := range objects {
			exported[object.GroupVersionKind().GroupKind().String()] = true
		}
	}
	g.Expect(allowed).To(ConsistOf(slices.Sorted(maps.Keys(exported))))
}
