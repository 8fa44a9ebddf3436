// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	title  = "Ichor hub"
	source = "https://ichor.maesh.dev"

	// spdxType is the media type of a bill of materials, and its artifact's.
	spdxType = "application/spdx+json"
)

// build writes the layout, and a bill of materials for each platform beside it.
func build(o options) (made []string, err error) {
	page, err := npmPackages(o.lock)
	if err != nil {
		return nil, err
	}
	foundation, err := newLayer(base(), o.created)
	if err != nil {
		return nil, fmt.Errorf("making the layer that everything stands on: %w", err)
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range o.binaries {
		image, bill, err := o.image(foundation, b, page)
		if err != nil {
			return nil, fmt.Errorf("making the image for %s: %w", b.platform, err)
		}
		index = mutate.AppendManifests(index, image)
		attached, err := attach(image.Add.(v1.Image), image.Descriptor, bill)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, attached)
		file := strings.TrimSuffix(o.out, "/") + "-" + strings.ReplaceAll(b.platform, "/", "-") + ".spdx.json"
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(file, bill, 0o644); err != nil {
			return nil, err
		}
		made = append(made, file)
	}
	digest, err := o.write(index)
	return append(made, o.out+" "+digest), err
}

// write writes the layout anew.
func (o options) write(index v1.ImageIndex) (digest string, err error) {
	if _, err := os.Stat(filepath.Join(o.out, "oci-layout")); err != nil {
		if entries, err := os.ReadDir(o.out); err == nil && len(entries) > 0 {
			return "", fmt.Errorf("%s is no OCI layout, and is not empty", o.out)
		}
	}
	if err := os.RemoveAll(o.out); err != nil {
		return "", err
	}
	path, err := layout.Write(o.out, empty.Index)
	if err != nil {
		return "", err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": o.version})); err != nil {
		return "", err
	}
	hash, err := index.Digest()
	return hash.String(), err
}

// image is the image for one platform, and its bill of materials.
func (o options) image(foundation v1.Layer, b binary, page []component) (mutate.IndexAddendum, []byte, error) {
	content, err := os.ReadFile(b.path)
	if err != nil {
		return mutate.IndexAddendum{}, nil, err
	}
	info, err := buildinfo.ReadFile(b.path)
	if err != nil {
		return mutate.IndexAddendum{}, nil, err
	}
	if err := checkPlatform(info, b.platform); err != nil {
		return mutate.IndexAddendum{}, nil, err
	}
	program, err := newLayer([]file{{binaryPath, 0o755, content}}, o.created)
	if err != nil {
		return mutate.IndexAddendum{}, nil, err
	}
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), foundation, program)
	if err != nil {
		return mutate.IndexAddendum{}, nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return mutate.IndexAddendum{}, nil, err
	}
	platform, err := v1.ParsePlatform(b.platform)
	if err != nil {
		return mutate.IndexAddendum{}, nil, err
	}
	if image, err = mutate.ConfigFile(image, o.config(config.DeepCopy(), platform)); err != nil {
		return mutate.IndexAddendum{}, nil, err
	}
	bill, err := bill(info, page, o.version, b.platform, content, o.created)
	return mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}}, bill, err
}

// checkPlatform refuses a binary that was built for another platform than it is said to be for.
func checkPlatform(info *buildinfo.BuildInfo, platform string) error {
	settings := map[string]string{}
	for _, setting := range info.Settings {
		settings[setting.Key] = setting.Value
	}
	if built := settings["GOOS"] + "/" + settings["GOARCH"]; built != platform {
		return fmt.Errorf("the binary is for %s", built)
	}
	if settings["CGO_ENABLED"] == "1" {
		return errors.New("the binary needs a C library: build it with CGO_ENABLED=0")
	}
	return nil
}

// config says how the image is run.
func (o options) config(config *v1.ConfigFile, platform *v1.Platform) *v1.ConfigFile {
	config.OS, config.Architecture = platform.OS, platform.Architecture
	config.Created = v1.Time{Time: o.created}
	config.Author = ""
	for i, what := range []string{"authorities and users", binaryPath} {
		config.History[i] = v1.History{Created: v1.Time{Time: o.created}, CreatedBy: "image", Comment: what}
	}
	config.Config = v1.Config{
		Entrypoint: []string{"/" + binaryPath}, User: fmt.Sprintf("%d:%d", user, user), WorkingDir: "/",
		Env: []string{"PATH=/usr/bin", "SSL_CERT_FILE=/" + rootsPath},
		Labels: map[string]string{
			"org.opencontainers.image.title": title, "org.opencontainers.image.version": o.version, "org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.url": source, "org.opencontainers.image.created": o.created.Format("2006-01-02T15:04:05Z"),
		},
	}
	return config
}

// attach makes an artifact of a bill of materials that refers to its image: registries list it as a referrer.
func attach(image v1.Image, of v1.Descriptor, bill []byte) (mutate.IndexAddendum, error) {
	artifact, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), spdxType), static.NewLayer(bill, spdxType))
	if err != nil {
		return mutate.IndexAddendum{}, err
	}
	size, err := image.Size()
	if err != nil {
		return mutate.IndexAddendum{}, err
	}
	digest, err := image.Digest()
	if err != nil {
		return mutate.IndexAddendum{}, err
	}
	subject := v1.Descriptor{MediaType: types.OCIManifestSchema1, Size: size, Digest: digest, Platform: of.Platform}
	attached, ok := mutate.Subject(artifact, subject).(v1.Image)
	if !ok {
		return mutate.IndexAddendum{}, errors.New("attaching the bill of materials: an image did not stay one")
	}
	return mutate.IndexAddendum{Add: attached, Descriptor: v1.Descriptor{
		ArtifactType: spdxType, Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"},
		Annotations: map[string]string{"org.opencontainers.image.title": "bill of materials of " + of.Platform.String()},
	}}, nil
}
