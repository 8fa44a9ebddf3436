// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/journal"
)

// inGit is a cluster that is upgraded in seconds.
var inGit = sim.ClusterSpec{Name: "git", ControlPlanes: 1, Workers: 1}

var _ = Describe("a cluster in Git", Ordered, func() {
	var w *world
	var repository, dir string
	BeforeAll(func(ctx SpecContext) {
		w = install(ctx, inGit)
		repository = GinkgoT().TempDir()
		dir = filepath.Join(repository, "default", "git")
	}, NodeTimeout(time.Minute))

	It("is exported the same by a hub and by the management API", func(ctx SpecContext) {
		out := w.ichor(ctx, 0, "gitops", "export", "--cluster", "git", "--dir", repository).Out
		for _, name := range []string{"cluster.yaml", "taloscluster.yaml", "machines.yaml", "kustomization.yaml"} {
			Expect(out).To(MatchRegexp(regexp.QuoteMeta(filepath.Join(dir, name)) + ` +written\n`))
		}
		Expect(w.SignIn(ctx)).To(Succeed())
		other := GinkgoT().TempDir()
		w.hub(ctx, 0, "gitops", "export", "--all", "--dir", other)
		Expect(tree(other)).To(Equal(tree(repository)))
		for path, content := range tree(repository) {
			Expect(content).NotTo(Or(ContainSubstring("kind: Secret"), ContainSubstring("TalosOperation"), ContainSubstring("status:"), ContainSubstring(" uid:"),
				ContainSubstring("client-key"), ContainSubstring("resourceVersion"), ContainSubstring("ownerReferences"), ContainSubstring("owner-id")), path)
		}
	}, SpecTimeout(time.Minute))

	It("applies cleanly, as kubectl and as Flux apply it, and stays the same", func(ctx SpecContext) {
		before := tree(repository)
		kubectl(ctx, w.Kubeconfig(), "apply", "-k", dir, "--server-side", "--field-manager=kustomize-controller")
		kubectl(ctx, w.Kubeconfig(), "apply", "-k", dir)
		Expect(kubectl(ctx, w.Kubeconfig(), "apply", "-k", dir)).To(And(
			MatchRegexp(`(?m)^cluster\.cluster\.x-k8s\.io/git unchanged$`), MatchRegexp(`(?m)^taloscluster\.ichor\.maesh\.dev/git unchanged$`),
			MatchRegexp(`(?m)^talosmachine\.ichor\.maesh\.dev/git-cp-1 unchanged$`), MatchRegexp(`(?m)^talosmachine\.ichor\.maesh\.dev/git-worker-1 unchanged$`),
		))
		Expect(w.ichor(ctx, 0, "gitops", "export", "--all", "--dir", repository).Out).NotTo(Or(ContainSubstring("written"), ContainSubstring("deleted")))
		Expect(tree(repository)).To(Equal(before), "what tools put on objects is none of Git's")
	}, SpecTimeout(time.Minute))

	It("takes no more rights than the example gives", func(ctx SpecContext) {
		kubectl(ctx, w.Kubeconfig(), "create", "namespace", "flux-system")
		kubectl(ctx, w.Kubeconfig(), "apply", "-f", "../../examples/gitops/flux/rbac.yaml")
		const account = "--as=system:serviceaccount:flux-system:fleet"
		kubectl(ctx, w.Kubeconfig(), "apply", "-k", dir, "--server-side", "--field-manager=kustomize-controller", account)
		for _, forbidden := range [][]string{
			{"create", "talosoperations"}, {"start", "talosoperations/talos"}, {"delete", "talosclusters"}, {"delete", "clusters.cluster.x-k8s.io"}, {"get", "secrets"},
		} {
			cmd := kubectlCommand(ctx, w.Kubeconfig(), append([]string{"auth", "can-i", account}, forbidden...)...)
			out, err := cmd.CombinedOutput()
			Expect(err).To(HaveOccurred(), string(out))
			Expect(string(out)).To(HaveSuffix("no\n"))
		}
	}, SpecTimeout(time.Minute))

	It("is upgraded by a commit, and the operation that brings it about", func(ctx SpecContext) {
		file := filepath.Join(dir, "taloscluster.yaml")
		edit(file, func(content string) string {
			content = regexp.MustCompile(`(?m)^ {2}talosVersion: .*\n`).ReplaceAllString(content, "")
			return strings.Replace(content, "\nspec:\n", "\nspec:\n  talosVersion: v1.14.1\n", 1)
		})
		kubectl(ctx, w.Kubeconfig(), "apply", "-k", dir, "--server-side", "--field-manager=kustomize-controller", "--force-conflicts")
		Expect(w.ichor(ctx, 1, "upgrade", "talos", "v1.14.2", "--cluster", "git", "--yes").Err).To(ContainSubstring("kustomize-controller"), "Git says what it shall be")
		w.ichor(ctx, 0, "upgrade", "talos", "v1.14.1", "--cluster", "git", "--yes", "--follow")
		for _, node := range w.Fleet.Cluster("git").Nodes() {
			Expect(node.State().Running.Version).To(Equal("v1.14.1"))
		}
		before := tree(repository)
		w.ichor(ctx, 0, "gitops", "export", "--cluster", "git", "--dir", repository)
		Expect(taloscluster(tree(repository))).To(ContainSubstring("talosVersion: v1.14.1"))
		after := tree(repository)
		delete(before, "default/git/taloscluster.yaml")
		delete(after, "default/git/taloscluster.yaml")
		Expect(after).To(Equal(before))
	}, SpecTimeout(2*time.Minute))

	It("keeps its operations when what is no longer in Git is pruned, and no machine hears of it", func(ctx SpecContext) {
		prune := func() string {
			cmd := kubectlCommand(ctx, w.Kubeconfig(), "apply", "-k", dir, "--prune", "--applyset=configmaps/fleet", "--namespace=default")
			cmd.Env = append(os.Environ(), "KUBECTL_APPLYSET=true")
			out, err := cmd.CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(out))
			return string(out)
		}
		prune()
		operations := names(ctx, w)
		Expect(operations).To(HaveLen(1))
		last := w.Fleet.Journal().Last()
		machines := filepath.Join(dir, "machines.yaml")
		edit(machines, func(content string) string {
			kept, _, found := strings.Cut(content, "---\n")
			Expect(found).To(BeTrue())
			return kept
		})
		Expect(prune()).To(ContainSubstring("talosmachine.ichor.maesh.dev/git-worker-1 pruned"))
		Expect(names(ctx, w)).To(Equal(operations))
		Eventually(func() string { return w.ichor(ctx, 0, "machine", "list").Out }).WithContext(ctx).Should(MatchRegexp(`git-worker-1 .* pending approval`))
		Expect(w.ichor(ctx, 0, "gitops", "export", "--cluster", "git", "--dir", repository).Err).To(ContainSubstring("machine git-worker-1 is left out until it is approved"))
		Expect(changes(w, last)).To(BeEmpty())
		w.ichor(ctx, 0, "machine", "approve", "git-worker-1")
	}, SpecTimeout(time.Minute))

	It("is forgotten when somebody deletes all of it, and no machine hears of it", func(ctx SpecContext) {
		w.ichor(ctx, 0, "gitops", "export", "--cluster", "git", "--dir", repository)
		boots := bootIDs(w)
		last := w.Fleet.Journal().Last()
		kubectl(ctx, w.Kubeconfig(), "delete", "-k", dir, "--ignore-not-found", "--timeout=30s") // The garbage collector is as fast.
		Expect(kubectl(ctx, w.Kubeconfig(), "get", "talosclusters,talosmachines,clusters.cluster.x-k8s.io", "--ignore-not-found", "-o", "name")).To(BeEmpty())
		Expect(changes(w, last)).To(BeEmpty())
		Expect(bootIDs(w)).To(Equal(boots))

		By("the directory brings the objects back, and an import the credentials, which are not in Git")
		kubectl(ctx, w.Kubeconfig(), "apply", "-k", dir)
		files := filepath.Join(filepath.Dir(w.FleetDir()), "git")
		w.ichor(ctx, 0, "cluster", "import", "git", "--from-kubeconfig", files+".kubeconfig", "--from-talosconfig", files+".talosconfig", "--take-over")
		Eventually(w.Unavailable).WithContext(ctx).Should(BeEmpty())
		Expect(w.ichor(ctx, 0, "machine", "list").Out).NotTo(ContainSubstring("pending approval"), "Git says which machines are approved")
		before := tree(repository)
		w.ichor(ctx, 0, "gitops", "export", "--cluster", "git", "--dir", repository)
		Expect(tree(repository)).To(Equal(before))
		Expect(changes(w, last)).To(ConsistOf(" kube PUT configmaps/ichor-hub"), "the take-over leaves its record on the target, and asks no machine for anything")
	}, SpecTimeout(time.Minute))
})

// tree are the files below a directory.
func tree(dir string) map[string]string {
	GinkgoHelper()
	found := map[string]string{}
	Expect(filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		found[filepath.ToSlash(name)] = string(content)
		return err
	})).To(Succeed())
	return found
}

func taloscluster(files map[string]string) string { return files["default/git/taloscluster.yaml"] }

// edit changes a file, as a commit does.
func edit(path string, change func(string) string) {
	GinkgoHelper()
	content, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	changed := change(string(content))
	Expect(changed).NotTo(Equal(string(content)))
	Expect(os.WriteFile(path, []byte(changed), 0o600)).To(Succeed())
}

// names are the operations that there are.
func names(ctx context.Context, w *world) []string {
	GinkgoHelper()
	var list v1alpha1.TalosOperationList
	Expect(w.client.List(ctx, &list)).To(Succeed())
	var found []string
	for i := range list.Items {
		found = append(found, list.Items[i].Name)
	}
	return found
}

// changes are what machines were asked to do since, beyond telling about themselves.
func changes(w *world, since uint64) []string {
	reads := w.Fleet.Journal().Reads()
	var found []string
	for _, entry := range w.Fleet.Journal().Entries(journal.Filter{After: since}) {
		if _, read := reads[entry.Cluster+"/"+entry.Node+"/"+entry.Method]; !read {
			found = append(found, entry.Node+" "+entry.Method)
		}
	}
	return found
}

func bootIDs(w *world) map[string]string {
	found := map[string]string{}
	for _, node := range w.Fleet.Cluster("git").Nodes() {
		found[node.Name()] = node.State().BootID
	}
	return found
}
