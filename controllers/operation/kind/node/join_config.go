// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/controllers/machineconfig/bases"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/talos/installer"
	"ichor.maesh.dev/hub/controllers/versions"
	"ichor.maesh.dev/hub/providers/talos"
)

// Configs make the machine configs of machines that join. They are modelled on a machine of the same role as it is now, so that whatever a
// roll-out or a rotation has brought there is in them.
type Configs struct {
	// Client reads TalosClusters, and writes on TalosMachines that they were given their machine config.
	Client client.Client

	// Bases keeps the bases of machines.
	Bases *bases.Store

	// Factory is the host, and path if any, of the Image Factory whose installers machines pull.
	Factory string
}

// unfitError means that a machine cannot be made what it shall be, or not so, and that trying once more does not help.
type unfitError struct{ why string }

// Error says why.
func (e *unfitError) Error() string { return e.why }

// made is the machine config of a machine that joins.
type made struct {
	base, whole []byte
	hash, image string

	// left is what the model has and the machine does not get.
	left []string
}

// without says what the machine does not get of what the model has.
func (m made) without() string {
	if len(m.left) == 0 {
		return ""
	}
	return "; not taken over: " + strings.Join(m.left, ", ")
}

// mostSiblings bounds how many machines of a role are asked what is the role's.
const mostSiblings = 4

// errNoModel means that no machine tells what the config of one that joins has to be like.
var errNoModel = errors.New("no machine of the cluster tells its machine config, on which this one's would be modelled")

// render makes the machine config of a machine that was found in maintenance mode.
func (c Configs) render(ctx context.Context, reader talos.Reader, scope kind.Scope, machine *v1alpha1.TalosMachine, found talos.Unconfigured) (made, error) {
	if found.UUID != machine.Spec.UUID {
		return made{}, &unfitError{fmt.Sprintf("the machine at %s has UUID %q, and not %q", machine.Spec.Address, found.UUID, machine.Spec.UUID)}
	}
	model, in, err := c.model(ctx, reader, scope, machine)
	if err != nil {
		return made{}, err
	}
	if err := sameMinor(found, model.Status.TalosVersion); err != nil {
		return made{}, err
	}
	if in.Disk, err = diskFor(machine.Spec.Join, found); err != nil {
		return made{}, err
	}
	cluster, err := c.cluster(ctx, scope)
	if err != nil {
		return made{}, err
	}
	if in.Image, err = c.image(cluster, model, found, in.Image); err != nil {
		return made{}, err
	}
	return finish(cluster, machine, in)
}

// image is the installer of what the model runs: with its schematic, else with the one that the cluster asks for. Where nobody knows one, the
// model was installed with something else, and only its own installer is the same again.
func (c Configs) image(cluster *v1alpha1.TalosCluster, model *v1alpha1.TalosMachine, found talos.Unconfigured, own string) (string, error) {
	version := model.Status.TalosVersion
	if schematic := cmp.Or(model.Status.SchematicID, cluster.Spec.SchematicID); schematic != "" {
		return installer.Image(c.Factory, found.Platform, found.SecureBoot, schematic, version), nil
	}
	if strings.HasSuffix(own, ":"+version) && found.SecureBoot == (model.Status.SecureBoot == v1alpha1.SecureBootEnabled) {
		return own, nil
	}
	return "", &unfitError{fmt.Sprintf("%s does not tell its schematic, and its machine config names installer %q, which is not known to be what it runs: set spec.schematicID of TalosCluster %s",
		model.Name, own, cluster.Name)}
}

func (c Configs) cluster(ctx context.Context, scope kind.Scope) (*v1alpha1.TalosCluster, error) {
	cluster := &v1alpha1.TalosCluster{}
	if err := c.Client.Get(ctx, scope.Cluster.NamespacedName, cluster); err != nil {
		return nil, fmt.Errorf("reading TalosCluster %s: %w", scope.Cluster.Name, err)
	}
	return cluster, nil
}

// again makes it once more for a machine that has it: where its disk is, and what was installed, is in there.
func (c Configs) again(ctx context.Context, reader talos.Reader, scope kind.Scope, machine *v1alpha1.TalosMachine, active []byte) (made, error) {
	_, in, err := c.model(ctx, reader, scope, machine)
	if err != nil {
		return made{}, err
	}
	if in.Disk, in.Image, err = machineconfig.InstalledBy(active); err != nil {
		return made{}, err
	}
	cluster, err := c.cluster(ctx, scope)
	if err != nil {
		return made{}, err
	}
	return finish(cluster, machine, in)
}

func finish(cluster *v1alpha1.TalosCluster, machine *v1alpha1.TalosMachine, in machineconfig.Joining) (made, error) {
	in.Patches, in.Hostname = machineconfig.Patches(cluster, machine), machine.Spec.Join.Hostname
	joined, err := machineconfig.Join(in)
	if err != nil {
		return made{}, &unfitError{err.Error()}
	}
	return made{base: joined.Base, whole: joined.Whole, hash: machineconfig.Hash(joined.Whole), image: in.Image, left: joined.Left}, nil
}

// model finds the machine on which the config is modelled, and reads its config and those of its siblings. The first worker of a cluster is
// modelled on a control plane.
func (c Configs) model(
	ctx context.Context, reader talos.Reader, scope kind.Scope, machine *v1alpha1.TalosMachine,
) (*v1alpha1.TalosMachine, machineconfig.Joining, error) {
	model, in, err := c.modelOf(ctx, reader, scope, machine, machine.Spec.Role)
	if err == nil || machine.Spec.Role == v1alpha1.ControlPlaneRole || !errors.Is(err, errNoModel) || has(scope, machine, machine.Spec.Role) {
		return model, in, err
	}
	model, in, err = c.modelOf(ctx, reader, scope, machine, v1alpha1.ControlPlaneRole)
	if err != nil {
		return nil, in, err
	}
	first, err := machineconfig.FirstWorker(in.Model, model.Status.TalosVersion)
	if err != nil {
		return nil, in, &unfitError{err.Error()}
	}
	return model, machineconfig.Joining{Model: first, Image: in.Image}, nil
}

// has says whether the cluster has another machine of a role.
func has(scope kind.Scope, machine *v1alpha1.TalosMachine, role v1alpha1.MachineRole) bool {
	return slices.ContainsFunc(scope.Approved, func(m *v1alpha1.TalosMachine) bool { return m.Name != machine.Name && m.Spec.Role == role })
}

func (c Configs) modelOf(
	ctx context.Context, reader talos.Reader, scope kind.Scope, machine *v1alpha1.TalosMachine, role v1alpha1.MachineRole,
) (model *v1alpha1.TalosMachine, in machineconfig.Joining, err error) {
	trouble := ""
	for _, other := range scope.Approved {
		if other.Spec.Role != role || other.Name == machine.Name || other.Status.TalosVersion == "" || len(in.Siblings) == mostSiblings {
			continue
		}
		switch own, err := reader.Config(ctx, other.Spec.Address); {
		case err != nil:
			trouble = fmt.Sprintf(": %s: %s", other.Name, talos.Trouble(err))
		case len(own.Active) == 0:
			trouble = fmt.Sprintf(": %s has none", other.Name)
		case model == nil:
			model, in.Model, in.Own = other, own.Active, []string{other.Spec.Address, other.Status.NodeName}
			in.Image = machineconfig.InstallerIn(own.Active)
		default:
			in.Siblings = append(in.Siblings, own.Active)
		}
	}
	if model == nil {
		return nil, in, fmt.Errorf("%w%s", errNoModel, trouble)
	}
	if in.Base, err = c.Bases.Read(ctx, model); err != nil && !errors.Is(err, bases.ErrNone) {
		return nil, in, err
	}
	return model, in, nil
}

// sameMinor refuses a machine whose Talos reads other configs than those of the cluster.
func sameMinor(found talos.Unconfigured, version string) error {
	own, ownErr := versions.Parse(found.Version)
	wanted, err := versions.Parse(version)
	if err := errors.Join(ownErr, err); err != nil {
		return &unfitError{err.Error()}
	}
	if own.Major == wanted.Major && own.Minor == wanted.Minor {
		return nil
	}
	return &unfitError{fmt.Sprintf("the machine runs Talos %s in maintenance mode, and the cluster %s: boot it from an image of v%d.%d", found.Version, version, wanted.Major, wanted.Minor)}
}

// diskFor chooses where Talos is installed. It guesses nothing: where there are several disks somebody has to say which.
func diskFor(join *v1alpha1.JoinSpec, found talos.Unconfigured) (string, error) {
	paths := make([]string, len(found.Disks))
	for i, disk := range found.Disks {
		paths[i] = disk.Path
	}
	switch has := strings.Join(paths, ", "); {
	case join.InstallDisk != "" && !slices.Contains(paths, join.InstallDisk):
		return "", &unfitError{fmt.Sprintf("the machine has no disk %s (spec.join.installDisk); it has %s", join.InstallDisk, has)}
	case join.InstallDisk != "":
		return join.InstallDisk, nil
	case found.SystemDisk != "":
		return found.SystemDisk, nil
	case len(paths) == 1:
		return paths[0], nil
	case len(paths) == 0:
		return "", &unfitError{"the machine has no disk that Talos could be installed on"}
	default:
		return "", &unfitError{fmt.Sprintf("the machine has several disks, and nobody has said which one is for Talos (spec.join.installDisk): %s", has)}
	}
}

// handOver records that a machine is about to be given its machine config. Whatever becomes of that, it may have the secrets of the cluster
// from then on.
func (c Configs) handOver(ctx context.Context, machine *v1alpha1.TalosMachine) error {
	if machine.Annotations[v1alpha1.ProvisionedAtAnnotation] != "" {
		return nil
	}
	after := machine.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, v1alpha1.ProvisionedAtAnnotation, time.Now().UTC().Format(time.RFC3339))
	if err := c.Client.Patch(ctx, after, client.MergeFrom(machine)); err != nil {
		return fmt.Errorf("recording that TalosMachine %s is given its machine config: %w", machine.Name, err)
	}
	return nil
}

// keep stores the base of a machine that has joined, so that what patches have added to its config goes when they are taken away.
func (c Configs) keep(ctx context.Context, machine *v1alpha1.TalosMachine, base []byte) error {
	return c.Bases.Keep(ctx, machine, base)
}
