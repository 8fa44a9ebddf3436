// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
	"ichor.maesh.dev/hub/providers/talos"
)

// systemVolumes hold what makes a machine one of its cluster. Those behind the first two are directories, unless they were given partitions
// of their own, which Talos may do from 1.14 on; then they keep their data unless they are named. The system itself stays: it is what boots into maintenance mode.
var systemVolumes = []string{
	constants.StatePartitionLabel, constants.EphemeralPartitionLabel,
	constants.EtcdDataVolumeID, constants.CRIContainerdVolumeID, constants.KubeletDataVolumeID, constants.LogVolumeID,
}

// wipeList is what of a machine's volumes is to be wiped, as the machine itself tells them.
func wipeList(node *v1alpha1.NodeParameters, volumes []talos.Volume) (talos.Reset, error) {
	reset := talos.Reset{PowerOff: node.PowersOff()}
	if node.Wipes(v1alpha1.WipeSystem) {
		for _, volume := range volumes {
			if volume.Partition && slices.Contains(systemVolumes, volume.ID) {
				reset.Partitions = append(reset.Partitions, volume.ID)
			}
		}
		for _, needed := range systemVolumes[:2] {
			if !slices.Contains(reset.Partitions, needed) {
				return talos.Reset{}, fmt.Errorf("the machine does not tell where its volume %s is: it would keep it", needed)
			}
		}
	}
	if !node.Wipes(v1alpha1.WipeUserVolumes) {
		return reset, nil
	}
	addUserVolumes(&reset, volumes)
	if len(reset.Partitions) == 0 && len(reset.Disks) == 0 {
		return talos.Reset{}, errors.New("the machine has no user volumes to wipe")
	}
	return reset, nil
}

// addUserVolumes adds the disks that hold user volumes, and the partitions of those that lie on the system disk.
func addUserVolumes(reset *talos.Reset, volumes []talos.Volume) {
	for _, volume := range volumes {
		switch user := strings.HasPrefix(volume.ID, constants.UserVolumePrefix) || strings.HasPrefix(volume.ID, constants.RawVolumePrefix); {
		case !user:
		case volume.System && volume.Partition:
			reset.Partitions = append(reset.Partitions, volume.ID)
		case !volume.System && !slices.Contains(reset.Disks, volume.Disk):
			reset.Disks = append(reset.Disks, volume.Disk)
		}
	}
}

// reset asks the machine to wipe itself, unless it is on its way already or has gone it. What is wiped is what it tells now.
func (e *Executor) reset(ctx context.Context, scope kind.Scope, unit kind.Unit) (kind.Outcome, error) {
	writer, facts, err := e.Writer(ctx, scope, unit)
	if err != nil {
		return kind.Outcome{}, err
	}
	if facts.BootID != unit.Status.PreRebootBootID || reboot.GoingDown(facts.Stage) {
		return kind.Outcome{}, nil
	}
	volumes, err := writer.Volumes(ctx, unit.Machine.Spec.Address)
	if err != nil {
		return kind.Outcome{}, reboot.Unheard(err)
	}
	list, err := wipeList(scope.Spec.Node, volumes)
	if err != nil {
		return kind.Outcome{}, err
	}
	what := strings.Join(slices.Concat(list.Partitions, list.Disks), ", ")
	return kind.Outcome{Message: "wiping " + what}, reboot.Unheard(writer.Reset(ctx, unit.Machine.Spec.Address, list))
}
