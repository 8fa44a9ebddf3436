// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	"github.com/distribution/reference"
	"github.com/siderolabs/talos/pkg/machinery/api/common"

	"ichor.maesh.dev/hub/test/sim/component"
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

// Store is one of the image stores of a machine: a containerd and a namespace in it. What was pulled into one is not in another.
type Store struct {
	Driver    common.ContainerDriver
	Namespace common.ContainerdNamespace
}

// The stores that something is started from.
var (
	// SystemStore is that of the installer.
	SystemStore = Store{Driver: common.ContainerDriver_CONTAINERD, Namespace: common.ContainerdNamespace_NS_SYSTEM}
	// KubeletStore is that of the kubelet, and PodStore that of all pods.
	KubeletStore = Store{Driver: common.ContainerDriver_CRI, Namespace: common.ContainerdNamespace_NS_SYSTEM}
	PodStore     = Store{Driver: common.ContainerDriver_CRI, Namespace: common.ContainerdNamespace_NS_CRI}
)

// stored is a name in a store.
type stored struct {
	store Store
	name  string
}

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
	mirrored      = []string{component.APIServer, component.ControllerManager, component.Scheduler, component.Kubelet, component.Proxy}
	lastInstaller = semver.MustParse("1.14.0-0") // ghcr.io/siderolabs/installer is published below this version only.
)

// ResolveImage looks a reference up in the registries that the simulation pretends to have.
func ResolveImage(ref string) (Image, error) {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return Image{}, fmt.Errorf("%w %q: %w", ErrInvalidReference, ref, err)
	}
	tag, ok := tagOf(named)
	image := describe(named.Name() + ":" + tag)
	if digested, pinned := named.(reference.Digested); !ok || pinned && digested.Digest().String() != image.Digest {
		return Image{}, fmt.Errorf("%s: %w", ref, ErrNoSuchImage)
	}
	switch domain, repository := reference.Domain(named), reference.Path(named); {
	case domain == "factory.talos.dev":
		image.System, ok = factorySystem(repository, tag)
	case domain == "ghcr.io" && repository == "siderolabs/installer":
		image.System, ok = plainSystem(tag)
	default: // Anybody may mirror the parts of Kubernetes.
		ok = plainImages.MatchString(named.Name()) || slices.Contains(mirrored, path.Base(repository))
	}
	if !ok {
		return Image{}, fmt.Errorf("%s: %w", ref, ErrNoSuchImage)
	}
	return image, nil
}

// tagOf is the reference's tag, the default one, or the one whose digest the reference has.
func tagOf(named reference.Named) (string, bool) {
	if tagged, ok := named.(reference.Tagged); ok {
		return tagged.Tag(), true
	}
	if digested, ok := named.(reference.Digested); ok {
		return component.TagOf(named.Name(), digested.Digest().String())
	}
	return "latest", true
}

func describe(name string) Image {
	digest := component.Digest(name)
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

// Pull fetches an image into a store. It takes no time when the store has it already.
func (m *Machine) Pull(ctx context.Context, store Store, ref string) (Image, error) {
	image, err := ResolveImage(ref)
	if err != nil {
		return Image{}, err
	}
	if m.ordered(fault.PullFailure, image) {
		return Image{}, ErrPullFailed
	}
	if m.hasLocked(store, ref) {
		return image, nil
	}
	if m.ordered(fault.ImageMissing, image) {
		return Image{}, fmt.Errorf("%s: %w", ref, ErrNoSuchImage)
	}
	if err := timing.Sleep(ctx, m.env.Clock, m.pullTime(image)); err != nil {
		return Image{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range []string{image.Name, image.Resolved} {
		m.images[stored{store: store, name: name}] = image
	}
	return image, nil
}

// ordered asks for a fault that concerns some images only.
func (m *Machine) ordered(name string, image Image) bool {
	_, ordered := m.env.Faults.FireIf(name, m.Site(), concerning(image))
	return ordered
}

func concerning(image Image) func(fault.Fault) bool {
	return func(f fault.Fault) bool { return fault.Matches(f.Params[fault.ParamImage], image.Name) }
}

// pullTime is longer where that was ordered.
func (m *Machine) pullTime(image Image) time.Duration {
	f, slow := m.env.Faults.FireIf(fault.SlowPull, m.Site(), concerning(image))
	delay, err := time.ParseDuration(f.Params[fault.ParamDelay])
	if !slow || err != nil {
		return m.env.Timings.Pull
	}
	return m.env.Timings.Pull + delay
}

// Images returns the images that were pulled into a store.
func (m *Machine) Images(store Store) []Image {
	m.mu.Lock()
	defer m.mu.Unlock()
	var images []Image
	for key, image := range m.images {
		if key.store == store && key.name == image.Name {
			images = append(images, image)
		}
	}
	return images
}

// pulled finds an image in a store, by any of its names.
func (m *Machine) pulled(store Store, ref string) (Image, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if image, ok := m.images[stored{store: store, name: ref}]; ok {
		return image, nil
	}
	return Image{}, fmt.Errorf("installer image %q %w in containerd store", ref, ErrNoSuchImage)
}
