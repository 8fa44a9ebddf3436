// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/test/e2e"
	"ichor.maesh.dev/hub/test/sim"
)

// speed is how much faster than in the demo the fleet lives.
const speed = 8

// shapes are the clusters that people have. Two control planes are what nobody should have, and some do.
var shapes = []sim.ClusterSpec{
	{Name: "s1-0", ControlPlanes: 1},
	{Name: "s1-2", ControlPlanes: 1, Workers: 2},
	{Name: "s2-1", ControlPlanes: 2, Workers: 1},
	{Name: "s3-0", ControlPlanes: 3},
	{Name: "s3-5", ControlPlanes: 3, Workers: 5},
	{Name: "s5-3", ControlPlanes: 5, Workers: 3},
	{Name: "mixed", ControlPlanes: 3, Workers: 2, TalosVersion: "v1.12.4", Mixed: []string{"v1.12.4", "v1.13.6", "v1.14.0"}},
}

func TestKinds(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "Kinds on every shape")
}

// world is one hub and a cluster of every shape.
type world struct {
	*e2e.Installation

	client client.Client
}

func install(ctx context.Context) *world {
	GinkgoHelper()
	installation, err := e2e.Install(ctx, GinkgoT().TempDir(), speed, shapes...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(installation.Stop)
	w := &world{Installation: installation}
	config, err := w.RESTConfig()
	Expect(err).NotTo(HaveOccurred())
	w.client, err = client.New(config, client.Options{Scheme: scheme.New()})
	Expect(err).NotTo(HaveOccurred())
	Expect(w.SignIn(ctx)).To(Succeed())
	for _, shape := range shapes {
		Expect(w.Import(ctx, shape.Name)).To(Succeed())
	}
	Eventually(w.Unavailable).WithContext(ctx).Should(BeEmpty())
	return w
}

// each does something for every shape at once.
func each(do func(place int, shape sim.ClusterSpec)) {
	var all sync.WaitGroup
	for place, shape := range shapes {
		all.Go(func() {
			defer GinkgoRecover()
			do(place, shape)
		})
	}
	all.Wait()
}

// refusal is what a start says that is refused; nothing means that it is not.
type refusal string

// run runs a command that starts an operation on the cluster of every shape, and follows it to its end. Every other cluster is spoken to
// through the hub's service, and the others through the management API: both are to say the same. No command for a shape leaves it out.
func (w *world) run(ctx context.Context, command func(sim.ClusterSpec) ([]string, refusal)) {
	GinkgoHelper()
	each(func(place int, shape sim.ClusterSpec) {
		args, refused := command(shape)
		if args == nil {
			return
		}
		args = append(slices.Clone(args), "--follow", "--yes", "--cluster", shape.Name)
		speak := w.CLI
		if place%2 == 1 {
			speak = w.HubCLI
		}
		result, err := speak(ctx, args...)
		Expect(err).NotTo(HaveOccurred())
		if refused == "" {
			Expect(result.Code).To(Equal(0), "ichor %v: %s", args, result)
			return
		}
		Expect(result.Code).To(Equal(1), "ichor %v: %s", args, result)
		Expect(result.Err).To(ContainSubstring(string(refused)), "ichor %v", args)
	})
}
