// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/test/e2e"
	"ichor.maesh.dev/hub/test/harness"
	"ichor.maesh.dev/hub/test/sim"
)

// speed is how much faster than in the demo the fleet lives.
const speed = 8

func TestEndToEnd(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "End to end")
}

// world is an installation with what tests need to look into it.
type world struct {
	*e2e.Installation

	client client.WithWatch
}

func install(ctx context.Context, clusters ...sim.ClusterSpec) *world {
	GinkgoHelper()
	installation, err := e2e.Install(ctx, GinkgoT().TempDir(), speed, clusters...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(installation.Stop)
	config, err := installation.RESTConfig()
	Expect(err).NotTo(HaveOccurred())
	w := &world{Installation: installation}
	w.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(w.tell)
	for _, cluster := range clusters {
		Expect(w.Import(ctx, cluster.Name)).To(Succeed())
	}
	Eventually(w.Unavailable).WithContext(ctx).Should(BeEmpty())
	return w
}

// tell tells of a spec that failed where its operations stand.
func (w *world) tell(ctx SpecContext) {
	if !CurrentSpecReport().Failed() {
		return
	}
	var list v1alpha1.TalosOperationList
	if err := w.client.List(ctx, &list); err != nil {
		GinkgoWriter.Printf("listing operations: %v\n", err)
	}
	for i := range list.Items {
		GinkgoWriter.Printf("%s: %s\n", list.Items[i].Name, harness.ShowOperation(&list.Items[i]))
	}
}

// hub runs the CLI on the hub and expects it to end with an exit code.
func (w *world) hub(ctx context.Context, code int, args ...string) e2e.Result {
	GinkgoHelper()
	result, err := w.HubCLI(ctx, args...)
	Expect(err).NotTo(HaveOccurred())
	Expect(result.Code).To(Equal(code), "ichor %v: %s", args, result)
	return result
}

// ichor runs the CLI and expects it to end with an exit code.
func (w *world) ichor(ctx context.Context, code int, args ...string) e2e.Result {
	GinkgoHelper()
	result, err := w.CLI(ctx, args...)
	Expect(err).NotTo(HaveOccurred())
	Expect(result.Code).To(Equal(code), "ichor %v: %s", args, result)
	return result
}

// leaders are the nodes that lead etcd now, by cluster.
func (w *world) leaders() map[string]string {
	leaders := map[string]string{}
	for _, cluster := range w.Fleet.Clusters() {
		leaders[cluster.Name()] = cluster.Leader().Name()
	}
	return leaders
}

// operation is the only operation of a cluster.
func (w *world) operation(ctx context.Context, cluster string) (*v1alpha1.TalosOperation, error) {
	var list v1alpha1.TalosOperationList
	if err := w.client.List(ctx, &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if list.Items[i].Spec.ClusterName == cluster {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}
