// SPDX-License-Identifier: Apache-2.0

// Package service_test holds the services of a hub to what they answer, over any transport and on a real management API.
package service_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"ichor.maesh.dev/hub/hub/service"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
	"ichor.maesh.dev/hub/test/service/table"
)

// plain serves the bare handlers, over the protocol of Connect.
func plain(t *testing.T, server *service.Server) table.Clients {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(ichorv1alpha1connect.NewOperationServiceHandler(server))
	mux.Handle(ichorv1alpha1connect.NewClusterServiceHandler(server))
	mux.Handle(ichorv1alpha1connect.NewHubServiceHandler(server))
	mux.Handle(ichorv1alpha1connect.NewAuditServiceHandler(server))
	serving := httptest.NewServer(mux)
	t.Cleanup(serving.Close)
	return table.Clients{
		Operations: ichorv1alpha1connect.NewOperationServiceClient(serving.Client(), serving.URL),
		Clusters:   ichorv1alpha1connect.NewClusterServiceClient(serving.Client(), serving.URL),
		Hub:        ichorv1alpha1connect.NewHubServiceClient(serving.Client(), serving.URL),
		Audit:      ichorv1alpha1connect.NewAuditServiceClient(serving.Client(), serving.URL),
	}
}
