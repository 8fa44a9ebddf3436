// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/hub/local"
	"ichor.maesh.dev/hub/test/service/table"
)

// Who misspells a field in JSON is told so: a CreateOperation that was to be tried alone must not start anything. The clients of the table
// cannot write such a request.
func TestFieldsThatThereAreNot(t *testing.T) {
	const order = `"order":{"cluster":{"namespace":"` + table.Namespace + `","name":"` + table.Cluster + `"},"kind":"OPERATION_KIND_NODE",` +
		`"parameters":{"node":{"machine":"c1-w-1","action":"Reboot"}}}`
	for name, row := range map[string]struct {
		method, content, body string
		status                int
		says                  string
	}{
		"a write": {
			"OperationService/CreateOperation", "application/json", `{` + order + `,"validation":true}`, http.StatusBadRequest,
			`field \"validation\" at 1:148: there is none of that name in CreateOperationRequest, nor in what it holds`,
		},
		"of what it holds": {
			"OperationService/ListOperations", "application/json; charset=utf-8", `{"filter":{"txet":"a"}}`, http.StatusBadRequest,
			`field \"txet\" at 1:12: there is none of that name in ListOperationsRequest`,
		},
		"a long name": {
			"OperationService/ListOperations", "application/json", `{"` + strings.Repeat("x", 1000) + `":1}`, http.StatusBadRequest,
			`field \"` + strings.Repeat("x", 64) + `\" at 1:2`,
		},
		"nothing":    {"HubService/GetHub", "application/json", ``, http.StatusBadRequest, `the body is empty: want {}`},
		"as written": {"OperationService/CreateOperation", "application/json", `{` + order + `,"validate_only":true}`, http.StatusOK, `"name"`},
		"as JSON has it": {
			"OperationService/CreateOperation", "application/json", `{` + order + `,"validateOnly":true}`, http.StatusOK, `"name"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			world := table.NewWorld()
			conn := local.Serve(world.Server(), logr.Discard())
			t.Cleanup(func() { NewWithT(t).Expect(conn.Close()).To(Succeed()) })
			status, answer := post(t, conn.HTTPClient(), conn.URL()+"/ichor.v1alpha1."+row.method, row.content, row.body)
			g.Expect(status).To(Equal(row.status), answer)
			g.Expect(answer).To(ContainSubstring(row.says))
			if row.status != http.StatusOK {
				g.Expect(answer).To(ContainSubstring(`"code":"invalid_argument"`))
				g.Expect(world.Writes()).To(BeEmpty())
			}
		})
	}
}

// A request that is GET has its message in its address.
func TestFieldsThatThereAreNotInAnAddress(t *testing.T) {
	g := NewWithT(t)
	conn := local.Serve(table.NewWorld().Server(), logr.Discard())
	t.Cleanup(func() { NewWithT(t).Expect(conn.Close()).To(Succeed()) })
	query := url.Values{"connect": {"v1"}, "encoding": {"json"}, "message": {`{"filtre":{}}`}}
	response, err := conn.HTTPClient().Get(conn.URL() + "/ichor.v1alpha1.OperationService/ListOperations?" + query.Encode()) //nolint:noctx // It ends with the connection.
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close() //nolint:errcheck // It has been read.
	answer, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(response.StatusCode).To(Equal(http.StatusBadRequest))
	g.Expect(string(answer)).To(ContainSubstring(`field \"filtre\" at 1:2`))
}

func post(t *testing.T, client *http.Client, address, content, body string) (status int, answer string) {
	t.Helper()
	g := NewWithT(t)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(body))
	g.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", content)
	response, err := client.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close() //nolint:errcheck // It has been read.
	text, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(text)
}
