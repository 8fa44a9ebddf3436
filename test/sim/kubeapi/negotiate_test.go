// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/gomega"
)

func TestNegotiate(t *testing.T) {
	for _, tt := range []struct {
		accept, mediaType string
		table, refused    bool
	}{
		{accept: "", mediaType: "application/json"},
		{accept: "*/*", mediaType: "application/json"},
		{accept: "application/vnd.kubernetes.protobuf,application/json", mediaType: "application/vnd.kubernetes.protobuf"},
		{accept: "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", mediaType: "application/json", table: true},
		{accept: "application/json;as=Other;v=v1,application/yaml", mediaType: "application/yaml"},
		{accept: "text/html", refused: true},
	} {
		t.Run(tt.accept, func(t *testing.T) {
			g := NewWithT(t)
			f, ok := negotiate(tt.accept)
			g.Expect(ok).To(Equal(!tt.refused))
			g.Expect(f.info.MediaType).To(Equal(tt.mediaType))
			g.Expect(f.table).To(Equal(tt.table))
		})
	}
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		path, namespace, name, subresource string
		resource                           *Resource
	}{
		{path: "/api/v1/nodes", resource: Nodes},
		{path: "/api/v1/nodes/n/status", resource: Nodes, name: "n", subresource: "status"},
		{path: "/api/v1/namespaces", resource: Namespaces},
		{path: "/api/v1/namespaces/default", resource: Namespaces, name: "default"},
		{path: "/api/v1/namespaces/default/status", resource: Namespaces, name: "default", subresource: "status"},
		{path: "/api/v1/namespaces/default/pods/p/eviction", resource: Pods, namespace: "default", name: "p", subresource: "eviction"},
		{path: "/apis/apps/v1/namespaces/x/deployments/d", resource: Deployments, namespace: "x", name: "d"},
		{path: "/apis/policy/v1/poddisruptionbudgets", resource: PodDisruptionBudgets},
	} {
		t.Run(tt.path, func(t *testing.T) {
			g := NewWithT(t)
			r, err := parse(httptest.NewRequest(http.MethodGet, tt.path, http.NoBody))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(r.resource).To(BeIdenticalTo(tt.resource))
			g.Expect([]string{r.namespace, r.name, r.subresource}).To(Equal([]string{tt.namespace, tt.name, tt.subresource}))
		})
	}
	for _, path := range []string{"/", "/api/v1", "/api/v1/replicationcontrollers", "/apis/apps/v2/deployments", "/api/v1/namespaces/a/pods/b/c/d"} {
		_, err := parse(httptest.NewRequest(http.MethodGet, path, http.NoBody))
		NewWithT(t).Expect(err).To(HaveOccurred(), path)
	}
}
