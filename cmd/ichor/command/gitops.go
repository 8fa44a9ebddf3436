// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"ichor.maesh.dev/hub/hub/gitops"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// usualExportDir is where clusters are exported to if nothing is said.
const usualExportDir = "clusters"

func newGitOpsCommand(a *app) *cobra.Command {
	return group("gitops", "Write clusters down as files for Git", nil, newGitOpsExportCommand(a))
}

func newGitOpsExportCommand(a *app) *cobra.Command {
	var dir string
	var all bool
	cmd := &cobra.Command{
		Use:   "export (--cluster NAME | --all)",
		Short: "Write a directory for each cluster: what it shall be, to be kept in Git",
		Long: `Write a directory for each cluster, DIR/NAMESPACE/NAME: its Cluster, its TalosCluster, its TalosMachines and a kustomization.yaml.

They say what the cluster shall be. Secrets, operations, snapshots, status, and what the management API and its controllers put on objects are
not among them. Exporting again changes nothing unless something was changed, and a file that an export did not write is neither written nor
deleted. Directories of clusters that are gone are left alone.

To delete such a directory removes no machine from any cluster; see docs/gitops.md for Flux and Argo CD.`,
		Example: `  ichor gitops export --cluster prod-1
  ichor gitops export --all --dir fleet/clusters`,
		Args: cobra.NoArgs,
		RunE: a.connected(func(cmd *cobra.Command, _ []string) error {
			switch {
			case all && a.clusterSet:
				return usageError("--all and --cluster exclude each other")
			case !a.forPeople() && a.output != outputName:
				return usageError("--output %q: an export takes %s, %s or %s", a.output, outputTable, outputWide, outputName)
			}
			wanted, failures, err := a.exported(cmd.Context(), cmd.Flags().Changed("namespace"), all)
			if err != nil {
				return err
			}
			results := &exportResults{dir: dir}
			for _, cluster := range wanted {
				if err := a.export(cmd.Context(), cluster, results); err != nil {
					return err
				}
			}
			if err := a.printExport(results); err != nil {
				return err
			}
			return a.partial(failures)
		}),
	}
	cmd.Flags().StringVar(&dir, "dir", usualExportDir, "directory to write to, created when missing")
	cmd.Flags().BoolVar(&all, "all", false, "all clusters, of all namespaces unless --namespace is given")
	return cmd
}

// exported are the clusters to export, by namespace and name.
func (a *app) exported(ctx context.Context, oneNamespace, all bool) ([]*pb.Reference, []*pb.Failure, error) {
	if !all {
		cluster, err := a.clusterRef()
		return []*pb.Reference{cluster}, nil, err
	}
	request := &pb.ListClustersRequest{Filter: &pb.ClusterFilter{}}
	if oneNamespace {
		request.Filter.Namespaces = []string{a.namespace}
	}
	list, err := a.listClusters(ctx, request)
	if err != nil {
		return nil, nil, fmt.Errorf("listing clusters: %w", err)
	}
	var wanted []*pb.Reference
	for _, cluster := range list.GetClusters() {
		wanted = append(wanted, cluster.GetRef())
	}
	return wanted, list.GetFailures(), nil
}

// exportResults are what has become of files.
type exportResults struct {
	dir   string
	files []exportedFile
}

type exportedFile struct{ path, outcome string }

// What becomes of a file.
const (
	fileWritten   = "written"
	fileUnchanged = "unchanged"
	fileDeleted   = "deleted"
)

func (r *exportResults) add(path, outcome string) {
	r.files = append(r.files, exportedFile{path, outcome})
}

// export writes one cluster.
func (a *app) export(ctx context.Context, cluster *pb.Reference, results *exportResults) error {
	response, err := call(ctx, a, a.connection.clusters.ExportCluster, &pb.ExportClusterRequest{Cluster: cluster})
	if err != nil {
		return fmt.Errorf("exporting cluster %s: %w", a.named(cluster), err)
	}
	for _, remark := range response.GetRemarks() {
		a.remark("Note: %s", remark)
	}
	return results.write(response.GetFiles())
}

// write writes the files of a cluster. Nothing is written if one of them is somebody else's.
func (r *exportResults) write(files []*pb.ExportedFile) error {
	paths := make([]string, len(files))
	for i, file := range files {
		local := filepath.FromSlash(file.GetPath())
		if !filepath.IsLocal(local) {
			return fmt.Errorf("the hub names a file outside of the directory: %q", file.GetPath())
		}
		paths[i] = filepath.Join(r.dir, local)
		if owner, err := ownerOf(paths[i]); err != nil || owner == somebody {
			return foreignFile(paths[i], err)
		}
	}
	for i, file := range files {
		outcome, err := writeFile(paths[i], []byte(file.GetContent()))
		if err != nil {
			return err
		}
		r.add(paths[i], outcome)
	}
	return r.tidy(paths)
}

// tidy deletes what an earlier export has written and this one has not, in the same directories.
func (r *exportResults) tidy(written []string) error {
	var dirs []string
	for _, path := range written {
		if dir := filepath.Dir(path); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range dirs {
		for _, name := range gitops.Files {
			path := filepath.Join(dir, name)
			if slices.Contains(written, path) {
				continue
			}
			owner, err := ownerOf(path)
			if err != nil {
				return foreignFile(path, err)
			}
			if owner != export {
				continue
			}
			if err := os.Remove(path); err != nil {
				return fmt.Errorf("deleting what an earlier export wrote: %w", err)
			}
			r.add(path, fileDeleted)
		}
	}
	return nil
}

// owner is who wrote a file.
type owner int

const (
	nobody owner = iota
	export
	somebody
)

// ownerOf finds out who wrote a file. What is no plain file is somebody's.
func ownerOf(path string) (owner, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nobody, nil
	case err != nil:
		return somebody, err
	case !info.Mode().IsRegular():
		return somebody, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return somebody, err
	}
	if gitops.Written(content) {
		return export, nil
	}
	return somebody, nil
}

func foreignFile(path string, err error) error {
	if err != nil {
		return fmt.Errorf("looking at %s: %w", path, err)
	}
	return fmt.Errorf("%s was not written by an export: move it elsewhere, or export to another --dir", path)
}

// writeFile writes a file unless it is as it should be.
func writeFile(path string, content []byte) (outcome string, err error) {
	now, err := os.ReadFile(path)
	switch {
	case err == nil && bytes.Equal(now, content):
		return fileUnchanged, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // It is for Git, and holds no secret.
		return "", fmt.Errorf("making the directory of %s: %w", path, err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil { //nolint:gosec // Likewise.
		return "", fmt.Errorf("writing %s: %w", path, err)
	}
	return fileWritten, nil
}

// printExport says what has become of each file.
func (a *app) printExport(results *exportResults) error {
	if a.output == outputName {
		for _, file := range results.files {
			fmt.Fprintln(a.Out, file.path)
		}
		return nil
	}
	if len(results.files) == 0 {
		a.remark("No clusters.")
		return nil
	}
	t := table{columns: columns("FILE", "OUTCOME")}
	for _, file := range results.files {
		t.rows = append(t.rows, []string{file.path, file.outcome})
	}
	return a.printTable(t)
}
