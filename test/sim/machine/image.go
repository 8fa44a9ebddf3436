// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/distribution/reference"

	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/timing"
)

// VanillaSchematic is the schematic without extensions or kernel arguments.
const VanillaSchematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

// Errors of images.
var (
	// ErrInvalidReference is returned for what is not an image reference.
	ErrInvalidReference = errors.New("invalid image reference")
	// ErrNoSuchImage is returned for references that no registry knows.
	ErrNoSuchImage = errors.New("not found")
	// ErrPullFailed is returned when that fault was ordered.
	ErrPullFailed = errors.New("unexpected status from registry: 503 Service Unavailable")
)

// Image is an image that a registry has.
type Image struct {
	// Name is the full reference with the tag; Resolved has the digest as well.
	Name, Resolved string
	// Digest is the manifest's.
	Digest string
	// System is what an installer image installs; empty for other images.
	System Slot
}

var (
	factoryPath   = regexp.MustCompile(`^(?:[a-z0-9-]+-)?installer(?:-secureboot)?/([0-9a-f]{64})$`)
	plainImages   = regexp.MustCompile(`^(?:registry\.k8s\.io/|ghcr\.io/siderolabs/|quay\.io/)`)
	lastInstaller = semver.MustParse("1.14.0-0") // ghcr.io/siderolabs/installer is published below this version only.
)

// ResolveImage looks a reference up in the registries that the simulation pretends to have.
func ResolveImage(ref string) (Image, error) {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return Image{}, fmt.Errorf("%w %q: %w", ErrInvalidReference, ref, err)
	}
	tagged, ok := reference.TagNameOnly(named).(reference.Tagged)
	if !ok {
		return Image{}, fmt.Errorf("%s: a digest without a tag: %w", ref, ErrNoSuchImage)
	}
	image := describe(named.Name() + ":" + tagged.Tag())
	if digested, ok := named.(reference.Digested); ok && digested.Digest().String() != image.Digest {
		return Image{}, fmt.Errorf("%s: %w", ref, ErrNoSuchImage)
	}
	switch domain, path := reference.Domain(named), reference.Path(named); {
	case domain == "factory.talos.dev":
		image.System, ok = factorySystem(path, tagged.Tag())
	case domain == "ghcr.io" && path == "siderolabs/installer":
		image.System, ok = plainSystem(tagged.Tag())
	default:
		ok = plainImages.MatchString(named.Name())
	}
	if !ok {
		return Image{}, fmt.Errorf("%s: %w", ref, ErrNoSuchImage)
	}
	return image, nil
}

func describe(name string) Image {
	sum := sha256.Sum256([]byte(name))
	digest := "sha256:" + hex.EncodeToString(sum[:])
	return Image{Name: name, Resolved: name + "@" + digest, Digest: digest}
}

func factorySystem(path, tag string) (Slot, bool) {
	match := factoryPath.FindStringSubmatch(path)
	if _, err := talosVersion(tag); match == nil || err != nil {
		return Slot{}, false
	}
	return Slot{Version: tag, Schematic: match[1]}, true
}

func plainSystem(tag string) (Slot, bool) {
	version, err := talosVersion(tag)
	if err != nil || version.GE(lastInstaller) {
		return Slot{}, false
	}
	return Slot{Version: tag, Schematic: VanillaSchematic}, true
}

func talosVersion(tag string) (semver.Version, error) {
	if !strings.HasPrefix(tag, "v1.") {
		return semver.Version{}, fmt.Errorf("%q is not a Talos version", tag)
	}
	return semver.Parse(tag[1:])
}

// AtLeast says whether the system's version is at least 1.minor; pre-releases of that minor count.
func (s Slot) AtLeast(minor uint64) bool {
	version, err := talosVersion(s.Version)
	return err == nil && (version.Major > 1 || version.Minor >= minor)
}

// Pull fetches an image. It takes no time when the machine has it already.
func (m *Machine) Pull(ctx context.Context, ref string) (Image, error) {
	image, err := ResolveImage(ref)
	if err != nil {
		return Image{}, err
	}
	if _, failed := m.env.Faults.Fire(fault.PullFailure, m.Site()); failed {
		return Image{}, ErrPullFailed
	}
	if _, err := m.pulled(image.Name); err == nil {
		return image, nil
	}
	if err := timing.Sleep(ctx, m.env.Clock, m.env.Timings.Pull); err != nil {
		return Image{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.images[image.Name], m.images[image.Resolved] = image, image
	return image, nil
}

// Images returns the images that were pulled.
func (m *Machine) Images() []Image {
	m.mu.Lock()
	defer m.mu.Unlock()
	var images []Image
	for name, image := range m.images {
		if name == image.Name {
			images = append(images, image)
		}
	}
	return images
}

// pulled finds an image in the machine's store, by any of its names.
func (m *Machine) pulled(ref string) (Image, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if image, ok := m.images[ref]; ok {
		return image, nil
	}
	return Image{}, fmt.Errorf("installer image %q %w in containerd store", ref, ErrNoSuchImage)
}
