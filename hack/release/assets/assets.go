// SPDX-License-Identifier: Apache-2.0

// Package assets makes the files of a release.
package assets

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/blang/semver/v4"
	"sigs.k8s.io/yaml"

	"ichor.maesh.dev/hub/hack/kustomize"
)

const (
	// Image is the image that config/ names, without its tag, and devTag is the tag.
	Image  = "ichor.maesh.dev/ichor-hub"
	devTag = ":dev"

	// Provider is the name of the directory of the provider in a local repository of clusterctl.
	Provider = "addon-ichor"

	chartName = "ichor-hub"
)

// Options say what is released.
type Options struct {
	// Version is the version of the release, such as v0.1.0.
	Version string

	// Image is where the image is, without its tag.
	Image string

	// Config is the directory config/, and Directory where the files go.
	Config, Directory string
}

// Write writes the files of a release, and returns their paths. The same sources give the same files, byte by byte.
func Write(o Options) ([]string, error) {
	version, err := semver.Parse(strings.TrimPrefix(o.Version, "v"))
	if err != nil || !strings.HasPrefix(o.Version, "v") {
		return nil, fmt.Errorf("version %q: want one such as v0.1.0", o.Version)
	}
	metadata, err := metadata(filepath.Join(o.Config, "clusterctl", "metadata.yaml"), version)
	if err != nil {
		return nil, err
	}
	chart, err := chart(filepath.Join(o.Config, "chart", chartName), o, version)
	if err != nil {
		return nil, err
	}
	dashboard, err := os.ReadFile(filepath.Join(o.Config, "grafana", "ichor-hub.json"))
	if err != nil {
		return nil, err
	}
	provider := path.Join(Provider, o.Version)
	files := []struct {
		path    string
		content []byte
	}{
		{path.Join(provider, "metadata.yaml"), metadata},
		{path.Join(provider, "addon-components.yaml"), nil},
		{"ichor-hub.yaml", nil},
		{"ichor-hub-created-by.yaml", nil},
		{"ichor-hub-prometheus.yaml", nil},
		{"cluster-api-cluster.yaml", nil},
		{"ichor-hub-dashboard.json", dashboard},
		{chartName + "-" + version.String() + ".tgz", chart},
	}
	var written []string
	for _, file := range files {
		if dir := rendered[path.Base(file.path)]; dir != "" {
			if file.content, err = o.render(dir); err != nil {
				return written, err
			}
		}
		target := filepath.Join(o.Directory, filepath.FromSlash(file.path))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil { //nolint:gosec // They are published.
			return written, err
		}
		if err := os.WriteFile(target, file.content, 0o644); err != nil { //nolint:gosec // Likewise.
			return written, err
		}
		written = append(written, target)
	}
	return written, nil
}

// rendered are the files that kustomize renders, and of what.
var rendered = map[string]string{
	"addon-components.yaml":     "clusterctl",
	"ichor-hub.yaml":            "default",
	"ichor-hub-created-by.yaml": "policies/mutating",
	"ichor-hub-prometheus.yaml": "prometheus",
	"cluster-api-cluster.yaml":  "crd/cluster-api",
}

func (o Options) render(dir string) ([]byte, error) {
	content, err := kustomize.Build(filepath.Join(o.Config, filepath.FromSlash(dir)))
	if err != nil {
		return nil, err
	}
	return bytes.ReplaceAll(content, []byte(Image+devTag), []byte(o.Image+":"+o.Version)), nil
}

// metadata reads the metadata for clusterctl, which refuses a version of which it does not tell the contract.
func metadata(file string, version semver.Version) ([]byte, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var known struct {
		ReleaseSeries []struct{ Major, Minor uint64 }
	}
	if err := yaml.Unmarshal(content, &known); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	for _, series := range known.ReleaseSeries {
		if series.Major == version.Major && series.Minor == version.Minor {
			return content, nil
		}
	}
	return nil, fmt.Errorf("%s: releaseSeries has no %d.%d, which v%s is of: add it", file, version.Major, version.Minor, version)
}

var (
	chartVersion = regexp.MustCompile(`(?m)^version: .*$`)
	appVersion   = regexp.MustCompile(`(?m)^appVersion: .*$`)
)

// chart packages the chart, as `helm package` does.
func chart(dir string, o Options, version semver.Version) ([]byte, error) {
	var b bytes.Buffer
	compressed := gzip.NewWriter(&b)
	archive := tar.NewWriter(compressed)
	files := os.DirFS(dir)
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		switch name {
		case "Chart.yaml":
			content = chartVersion.ReplaceAll(content, []byte("version: "+version.String()))
			content = appVersion.ReplaceAll(content, []byte("appVersion: "+o.Version))
		case "values.yaml":
			content = bytes.ReplaceAll(content, []byte("repository: "+Image+"\n"), []byte("repository: "+o.Image+"\n"))
		}
		header := &tar.Header{Name: path.Join(chartName, name), Mode: 0o644, Size: int64(len(content)), Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err = archive.Write(content)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("packaging the chart: %w", err)
	}
	if err := errors.Join(archive.Close(), compressed.Close()); err != nil {
		return nil, fmt.Errorf("packaging the chart: %w", err)
	}
	return b.Bytes(), nil
}
