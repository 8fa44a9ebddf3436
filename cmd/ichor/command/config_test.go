// SPDX-License-Identifier: Apache-2.0

package command

import (
	"testing"

	. "github.com/onsi/gomega"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

func configDiff(name, effect string, change func(*pb.ConfigDiff)) *pb.ConfigDiff {
	diff := &pb.ConfigDiff{Machine: ref("default", name), Role: pb.MachineRole_MACHINE_ROLE_WORKER, Effect: effect}
	change(diff)
	return diff
}

// The exit code says whether anything differs, and is an error where that is not known.
func TestConfigDiff(t *testing.T) {
	same := configDiff("w-1", "None", func(*pb.ConfigDiff) {})
	differs := configDiff("w-2", "Reboot", func(d *pb.ConfigDiff) {
		d.Diff = "--- in force\n+++ asked for\n+    env:\n+        A: (secret)\x1b[2J\n"
	})
	later := configDiff("w-3", "Upgrade", func(*pb.ConfigDiff) {})
	tried := configDiff("w-4", "None", func(d *pb.ConfigDiff) { d.Pending = "somebody tries one" })
	unknown := configDiff("w-5", "", func(d *pb.ConfigDiff) { d.Trouble = "patch \"a\": it is not YAML" })
	for name, row := range map[string]struct {
		machines []*pb.ConfigDiff
		args     []string
		code     int
		out, err string
	}{
		"nothing differs": {[]*pb.ConfigDiff{same}, nil, 0, "w-1 (Worker): as it is asked for\n", ""},
		"some differ": {[]*pb.ConfigDiff{same, differs, later}, []string{"w-1", "w-2", "w-3"}, 4,
			"w-1 (Worker): as it is asked for\nw-2 (Worker): differs, and needs a reboot\n  --- in force\n  +++ asked for\n  +    env:\n  +        A: (secret) [2J\nw-3 (Worker): differs, and takes effect at the next upgrade of Talos\n", ""},
		"one is tried":     {[]*pb.ConfigDiff{tried}, nil, 4, "w-4 (Worker): as it is asked for\n  Pending: somebody tries one\n", ""},
		"one is not known": {[]*pb.ConfigDiff{differs, unknown}, []string{"-o", "json"}, 1, "", "Error: it is not known of every machine how its config stands\n"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := newFakeHub(t)
			h.answer(&pb.DiffConfigResponse{Machines: row.machines})
			r := newUser(t, h).ichor(append([]string{"config", "diff", "--cluster", "prod-1"}, row.args...)...)
			g.Expect(r.Code).To(Equal(row.code))
			g.Expect(r.Err).To(Equal(row.err))
			if row.out != "" {
				g.Expect(r.Out).To(Equal(row.out))
			}
			asked := of[*pb.DiffConfigRequest](h)
			g.Expect(asked).To(HaveLen(1))
			g.Expect(asked[0].GetCluster().GetName()).To(Equal("prod-1"))
		})
	}
}

// A plan says of each machine what becomes of it.
func TestPlanOfMachines(t *testing.T) {
	g := NewWithT(t)
	for want, m := range map[string]*pb.PlanMachine{
		"w (Worker) reboots":                               {Effect: pb.Effect_EFFECT_REBOOT, Diff: "+a"},
		"w (Worker) changes without a reboot":              {Effect: pb.Effect_EFFECT_RESTART_COMPONENTS, Diff: "+a"},
		"w (Worker) changes for the next upgrade of Talos": {Effect: pb.Effect_EFFECT_NONE, Diff: "+a"},
		"w (Worker) stays as it is":                        {Effect: pb.Effect_EFFECT_NONE},
		"w (Worker)":                                       {},
	} {
		m.Name, m.Role = "w", pb.MachineRole_MACHINE_ROLE_WORKER
		g.Expect(planMachine(m)).To(Equal(want))
	}
}
