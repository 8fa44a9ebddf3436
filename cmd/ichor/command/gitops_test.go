// SPDX-License-Identifier: Apache-2.0

package command

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/hub/gitops"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

func exportOf(files ...string) *pb.ExportClusterResponse {
	response := &pb.ExportClusterResponse{}
	for _, file := range files {
		response.Files = append(response.Files, &pb.ExportedFile{Path: "default/prod-1/" + file, Content: gitops.Mark + " " + file + "\n"})
	}
	return response
}

// tree are the files below a directory, and their content.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	NewWithT(t).Expect(filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
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

func TestExportWritesOnlyWhatChanges(t *testing.T) {
	g := NewWithT(t)
	h := newFakeHub(t)
	u := newUser(t, h)
	dir := filepath.Join(t.TempDir(), "fleet")
	h.answer(exportOf("cluster.yaml", "taloscluster.yaml"), exportOf("cluster.yaml", "taloscluster.yaml"), exportOf("taloscluster.yaml", "machines.yaml"))
	args := []string{"gitops", "export", "--cluster", "prod-1", "--dir", dir}
	g.Expect(u.ichor(args...).Out).To(MatchRegexp(`FILE +OUTCOME\n\S+/cluster.yaml +written\n\S+/taloscluster.yaml +written\n$`))
	before := tree(t, dir)
	g.Expect(before).To(HaveLen(2))
	g.Expect(u.ichor(args...).Out).To(MatchRegexp(`\S+/cluster.yaml +unchanged\n\S+/taloscluster.yaml +unchanged\n$`))
	g.Expect(tree(t, dir)).To(Equal(before))
	g.Expect(of[*pb.ExportClusterRequest](h)[0].GetCluster()).To(BeComparableTo(ref("default", "prod-1"), protoEqual))

	// What an export has written and does not write any more goes; what somebody else has written stays.
	own := filepath.Join(dir, "default", "prod-1", "patch.yaml")
	g.Expect(os.WriteFile(own, []byte("mine\n"), 0o600)).To(Succeed())
	g.Expect(u.ichor(args...).Out).To(MatchRegexp(`\S+/taloscluster.yaml +unchanged\n\S+/machines.yaml +written\n\S+/cluster.yaml +deleted\n$`))
	g.Expect(tree(t, dir)).To(And(HaveLen(3), HaveKeyWithValue("default/prod-1/patch.yaml", "mine\n"), Not(HaveKey("default/prod-1/cluster.yaml"))))
}

func TestExportLeavesFilesOfOthersAlone(t *testing.T) {
	for name, prepare := range map[string]func(g *WithT, path string){
		"a file":      func(g *WithT, path string) { g.Expect(os.WriteFile(path, []byte("mine\n"), 0o600)).To(Succeed()) },
		"a link":      func(g *WithT, path string) { g.Expect(os.Symlink("elsewhere", path)).To(Succeed()) },
		"a directory": func(g *WithT, path string) { g.Expect(os.Mkdir(path, 0o755)).To(Succeed()) },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := newFakeHub(t)
			h.answer(exportOf("cluster.yaml", "taloscluster.yaml"))
			dir := t.TempDir()
			path := filepath.Join(dir, "default", "prod-1", "taloscluster.yaml")
			g.Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
			prepare(g, path)
			r := newUser(t, h).ichor("gitops", "export", "--cluster", "prod-1", "--dir", dir)
			g.Expect(r.Code).To(Equal(1))
			g.Expect(r.Err).To(ContainSubstring(path + " was not written by an export"))
			g.Expect(filepath.Join(dir, "default", "prod-1", "cluster.yaml")).NotTo(BeAnExistingFile(), "nothing of the cluster is written then")
		})
	}
}

func TestExportOfAllClusters(t *testing.T) {
	g := NewWithT(t)
	h := world(t)
	u := newUser(t, h)
	dir := t.TempDir()
	export := exportOf("taloscluster.yaml")
	export.Remarks = []string{"machine w-9 is left out"}
	h.answer(export)
	r := u.ichor("gitops", "export", "--all", "--dir", dir, "-o", "name")
	g.Expect(r.Code).To(BeZero())
	g.Expect(r.Out).To(ContainSubstring(filepath.Join("default", "prod-1", "taloscluster.yaml")))
	g.Expect(r.Err).To(ContainSubstring("Note: machine w-9 is left out\n"))
	g.Expect(of[*pb.ExportClusterRequest](h)).To(HaveLen(2))
	g.Expect(of[*pb.ListClustersRequest](h)[0].GetFilter().GetNamespaces()).To(BeEmpty())
	u.ichor("gitops", "export", "--all", "--dir", dir, "-n", "team")
	g.Expect(of[*pb.ListClustersRequest](h)[1].GetFilter().GetNamespaces()).To(Equal([]string{"team"}))
}

func TestExportRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		args []string
		path string
		code int
		says string
	}{
		"both":                   {args: []string{"--all", "--cluster", "prod-1"}, code: 2, says: "--all and --cluster exclude each other"},
		"neither":                {code: 2, says: "--cluster is needed"},
		"another format":         {args: []string{"--all", "-o", "json"}, code: 2, says: `--output "json": an export takes table, wide or name`},
		"a hub that goes astray": {args: []string{"--cluster", "prod-1"}, path: "../../etc/passwd", code: 1, says: `outside of the directory: "../../etc/passwd"`},
		"an absolute path":       {args: []string{"--cluster", "prod-1"}, path: "/etc/passwd", code: 1, says: `outside of the directory: "/etc/passwd"`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := world(t)
			h.answer(&pb.ExportClusterResponse{Files: []*pb.ExportedFile{{Path: row.path}}})
			dir := t.TempDir()
			r := newUser(t, h).ichor(append([]string{"gitops", "export", "--dir", dir}, row.args...)...)
			g.Expect(r.Code).To(Equal(row.code), r.Err)
			g.Expect(r.Err).To(ContainSubstring(row.says))
			g.Expect(tree(t, dir)).To(BeEmpty())
		})
	}
}
