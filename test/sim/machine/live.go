// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configdiff"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
)

// liveFields are the fields of a v1alpha1 config that Talos before 1.14 brings in force without a reboot, by the struct they
// are in. Other documents never need one.
var liveFields = struct{ root, machine, features []string }{
	root: []string{"ConfigDebug", "ClusterConfig"},
	machine: []string{
		"MachineCA", "MachineAcceptedCAs", "MachineTime", "MachineCertSANs", "MachineInstall", "MachineNetwork", "MachineSysfs",
		"MachineSysctls", "MachineLogging", "MachineControlPlane", "MachineKubelet", "MachineKernel", "MachineRegistries",
		"MachinePods", "MachineSeccompProfiles", "MachineNodeAnnotations", "MachineNodeLabels", "MachineNodeTaints",
	},
	features: []string{
		"KubernetesTalosAPIAccessConfig", "KubePrismSupport", "HostDNSSupport", "ImageCacheSupport", "FeatureNodeAddressSortAlgorithm",
	},
}

// errNotV1Alpha1 is the answer to configs without the main document.
var errNotV1Alpha1 = errors.New("config is not v1alpha1")

// NeedsReboot says why a Talos before 1.14 cannot bring a config in force without a reboot; nothing means that it can.
func (m *Machine) NeedsReboot(c config.Provider) error {
	active, _ := m.Config()
	now, then := active.RawV1Alpha1(), c.RawV1Alpha1()
	if now == nil || then == nil {
		return errNotV1Alpha1
	}
	then = then.DeepCopy()
	copyFields(now, then, liveFields.root)
	if now.MachineConfig != nil && then.MachineConfig != nil {
		copyFields(now.MachineConfig, then.MachineConfig, liveFields.machine)
		if now.MachineConfig.MachineFeatures != nil && then.MachineConfig.MachineFeatures != nil {
			copyFields(now.MachineConfig.MachineFeatures, then.MachineConfig.MachineFeatures, liveFields.features)
		}
	}
	if reflect.DeepEqual(now, then) {
		return nil
	}
	return notLive(now, then)
}

func notLive(now, then *v1alpha1.Config) error {
	diff, err := configdiff.DiffConfigs(container.NewV1Alpha1(now), container.NewV1Alpha1(then))
	if err != nil {
		return fmt.Errorf("error calculating diff: %w", err)
	}
	return fmt.Errorf("this config change can't be applied in immediate mode\ndiff:\n%s", diff)
}

// copyFields copies the named fields of one struct to another of its type.
func copyFields[T any](from, to *T, names []string) {
	source, target := reflect.ValueOf(from).Elem(), reflect.ValueOf(to).Elem()
	for _, name := range names {
		target.FieldByName(name).Set(source.FieldByName(name))
	}
}
