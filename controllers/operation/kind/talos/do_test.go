// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	kubefake "ichor.maesh.dev/hub/providers/kube/fake"
	"ichor.maesh.dev/hub/providers/talos"
	talosfake "ichor.maesh.dev/hub/providers/talos/fake"
)

// Cases C9 and C10: platform, flavour and schematic of the machine are kept.
func TestCaseC9C10Image(t *testing.T) {
	for name, row := range map[string]struct {
		running   talos.Machine
		schematic string
		want      string
	}{
		"as it is":          {talos.Machine{Platform: "metal", SchematicID: schematicA}, "", "factory.talos.dev/metal-installer/" + schematicA + ":v1.14.1"},
		"Secure Boot":       {talos.Machine{Platform: "metal", SchematicID: schematicA, SecureBoot: true}, "", "factory.talos.dev/metal-installer-secureboot/" + schematicA + ":v1.14.1"},
		"a cloud":           {talos.Machine{Platform: "hcloud", SchematicID: schematicA}, "", "factory.talos.dev/hcloud-installer/" + schematicA + ":v1.14.1"},
		"another schematic": {talos.Machine{Platform: "metal", SchematicID: schematicA}, schematicB, "factory.talos.dev/metal-installer/" + schematicB + ":v1.14.1"},
	} {
		t.Run(name, func(t *testing.T) {
			target := v1alpha1.OperationTarget{TalosVersion: "v1.14.1", SchematicID: row.schematic}
			NewWithT(t).Expect(Image("factory.talos.dev", row.running, target)).To(Equal(row.want))
		})
	}
}

func world() (*Executor, *talosfake.Talos, kind.Scope) {
	machines := talosfake.New()
	machines.Add("10.0.1.1", runs("v1.13.9", schematicA).Talos, nil)
	scope := to("v1.14.1", "")
	scope.Guard = func(context.Context) error { return nil }
	return New(machines, kubefake.New(), "factory.example/talos", nil), machines, scope
}

func TestPullAndInstall(t *testing.T) {
	g := NewWithT(t)
	e, machines, scope := world()
	image := "factory.example/talos/metal-installer/" + schematicA + ":v1.14.1"

	outcome, err := e.Do(t.Context(), scope, unit("Pull", "Pulling"), "Pulling")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(outcome).To(Equal(kind.Outcome{ResolvedImage: image}))

	outcome, err = e.Do(t.Context(), scope, unit("Upgrade", "Installing", resolved(image)), "Installing")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(outcome).To(Equal(kind.Outcome{ExitCode: ptr.To(int32(0))}))

	_, err = e.Do(t.Context(), scope, unit("Upgrade", "Rebooting", func(u *v1alpha1.UnitStatus) { u.PreRebootBootID = "new" }), "Rebooting")
	g.Expect(err).NotTo(HaveOccurred(), "the other steps are those of every reboot")
	g.Expect(machines.Calls()).To(Equal([]string{"PullImage 10.0.1.1", "InstallImage 10.0.1.1", "Reboot 10.0.1.1"}))
	g.Expect(machines.Facts("10.0.1.1").Version).To(Equal("v1.14.1"))
}

// The call succeeds whatever the installer did; its exit code is the answer, and nothing runs an installer again that gave one.
func TestInstallerExitCodes(t *testing.T) {
	for code, message := range map[int32]string{
		1:  "the installer ended with exit code 1",
		2:  "the installer ended with exit code 2: invalid input",
		3:  "the installer ended with exit code 3: not supported",
		4:  "the installer ended with exit code 4: the environment does not allow it",
		7:  "the installer ended with exit code 7: the installation failed",
		42: "the installer ended with exit code 42",
	} {
		g := NewWithT(t)
		e, machines, scope := world()
		machines.ExitWith("10.0.1.1", code)
		outcome, err := e.Do(t.Context(), scope, unit("Upgrade", "Installing", resolved("an/image:v1")), "Installing")
		g.Expect(err).To(MatchError(message))
		g.Expect(outcome.ExitCode).To(HaveValue(Equal(code)))
		g.Expect(e.Classify(err)).To(BeEquivalentTo("Permanent"), "exit code %d", code)
	}
}

// Without the name of an image there is nothing to install, and a machine must not be asked to.
func TestInstallNeedsAnImage(t *testing.T) {
	g := NewWithT(t)
	e, machines, scope := world()
	outcome, err := e.Do(t.Context(), scope, unit("Upgrade", "Installing"), "Installing")
	g.Expect(err).To(MatchError("it is not known which image the machine has pulled"))
	g.Expect(outcome).To(BeZero())
	g.Expect(e.Classify(err)).To(BeEquivalentTo("Permanent"))
	g.Expect(machines.Calls()).To(BeEmpty())
}

// Case B10, before the first byte is written.
func TestCaseB10NothingIsInstalledOnAnotherMachine(t *testing.T) {
	for _, step := range []v1alpha1.OperationStep{"Pulling", "Installing"} {
		g := NewWithT(t)
		e, machines, scope := world()
		machines.Change("10.0.1.1", func(m *talos.Machine, _ *talos.Etcd) { m.UUID = "uuid-2" })
		_, err := e.Do(t.Context(), scope, unit("Upgrade", step), step)
		g.Expect(e.Classify(err)).To(BeEquivalentTo("Permanent"))
		g.Expect(machines.Calls()).To(BeEmpty())
	}
}

func TestClassify(t *testing.T) {
	for name, row := range map[string]struct {
		err  error
		want v1alpha1.ErrorClass
	}{
		"another install runs": {status.Error(codes.FailedPrecondition, "another upgrade is already in progress"), "InProgress"},
		"away":                 {status.Error(codes.Unavailable, "x"), "Retryable"},
		"no such image":        {status.Error(codes.NotFound, "x"), "Permanent"},
		"the network":          {errors.New("x"), "Retryable"},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(executor().Classify(row.err)).To(Equal(row.want))
		})
	}
}
