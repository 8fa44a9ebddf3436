// SPDX-License-Identifier: Apache-2.0

package deep

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/test/sim/kubeapi"
)

// mapper knows the resources that the simulation works with, so that no client has to ask for them.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, r := range kubeapi.Resources() {
		scope := meta.RESTScopeRoot
		if r.Namespaced {
			scope = meta.RESTScopeNamespace
		}
		kind := r.GroupVersionKind()
		version := kind.GroupVersion()
		m.AddSpecific(kind, version.WithResource(r.Plural), version.WithResource(r.Plural), scope)
	}
	return m
}

// client makes a client in the name of a machine's kubelet, or of an administrator where owner is empty.
func (c *Cluster) client(owner string) (client.WithWatch, error) {
	who := administrator
	if owner != "" {
		who = kubelet
	}
	config := &rest.Config{
		Host: "https://kubernetes.default.svc", QPS: -1, UserAgent: "ichor-sim", ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	}
	made, err := client.NewWithWatch(config, client.Options{
		HTTPClient: &http.Client{Transport: c.newTransport(who, owner)}, Scheme: scheme.Scheme, Mapper: mapper(),
	})
	if err != nil {
		return nil, fmt.Errorf("client of the Kubernetes API: %w", err)
	}
	return made, nil
}

// writeWithin is how long a request may take that something else waits for.
const writeWithin = 10 * time.Second
