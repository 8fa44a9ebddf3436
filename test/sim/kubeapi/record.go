// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"errors"
	"io"
	"log"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ichor.maesh.dev/hub/test/sim/journal"
)

var discardLog = log.New(io.Discard, "", 0)

// record writes the arrival of a changing request to the journal, as "kube PATCH nodes/x".
func (a *API) record(r *request) *journal.Call {
	path := r.resource.Plural
	for _, part := range []string{r.name, r.subresource} {
		if part != "" {
			path += "/" + part
		}
	}
	arguments := map[string]string{}
	if agent, _, _ := strings.Cut(r.UserAgent(), "/"); agent != "" {
		arguments["agent"] = agent
	}
	if r.namespace != "" {
		arguments["namespace"] = r.namespace
	}
	if r.dryRun {
		arguments["dryRun"] = "All"
	}
	user := userOf(r.Request)
	r.entry = a.Journal.Begin(journal.Entry{
		Cluster:   a.Cluster,
		Method:    "kube " + r.Method + " " + path,
		Arguments: arguments,
		Caller:    user.Username,
		Roles:     slices.DeleteFunc(slices.Clone(user.Groups), func(group string) bool { return group == authenticatedGroup }),
	}, false)
	return r.entry
}

// outcome is an error's HTTP status and message.
func outcome(err error) (int, string) {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return int(status.Status().Code), status.Status().Message
	}
	return http.StatusInternalServerError, err.Error()
}
