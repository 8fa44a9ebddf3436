// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func TestStartPlane(t *testing.T) {
	g := NewWithT(t)
	plane, err := StartPlane(t.Context())
	g.Expect(err).NotTo(HaveOccurred())

	client, err := kubernetes.NewForConfig(plane.Config)
	g.Expect(err).NotTo(HaveOccurred())
	resources, err := client.Discovery().ServerResourcesForGroupVersion("ichor.maesh.dev/v1alpha1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(names(resources)).To(ContainElement("talosoperations"))
	g.Expect(plane.Kubeconfig).To(BeARegularFile())

	g.Expect(plane.Stop()).To(Succeed())
	g.Expect(plane.dir).NotTo(BeADirectory())
}

func names(list *metav1.APIResourceList) []string {
	var found []string
	for _, resource := range list.APIResources {
		found = append(found, resource.Name)
	}
	return found
}

func TestBinarySaysHowToGetIt(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("ICHOR_HUB_BINARY", filepath.Join(t.TempDir(), "absent"))
	_, err := Binary("ichor-hub")
	g.Expect(err).To(MatchError(os.ErrNotExist))
	g.Expect(err).To(MatchError(ContainSubstring("make build")))
}

func TestBinaryOfTheEnvironment(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "mine")
	g.Expect(os.WriteFile(path, nil, 0o700)).To(Succeed())
	t.Setenv("ICHOR_SIM_BINARY", path)
	g.Expect(Binary("ichor-sim")).To(Equal(path))
}
