// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ichor.maesh.dev/hub/test/sim/journal"
)

// request is a parsed request for a resource.
type request struct {
	*http.Request
	resource        *Resource
	namespace, name string
	subresource     string
	query           url.Values
	labels          labels.Selector
	fields          fields.Selector
	dryRun          bool
	entry           *journal.Call // Set by record, for changing requests.
}

// parse reads a path such as /api/v1/namespaces/default/pods/x/eviction or /apis/apps/v1/deployments.
func parse(r *http.Request) (*request, error) {
	req := &request{Request: r, query: r.URL.Query()}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	group, version, rest := groupVersion(parts)
	if len(rest) >= 3 && rest[0] == "namespaces" && !slices.Contains([]string{"status", "finalize"}, rest[2]) {
		req.namespace, rest = rest[1], rest[2:]
	}
	if len(rest) == 0 || len(rest) > 3 {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path)
	}
	req.resource = findResource(group, version, rest[0])
	if req.resource == nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusNotFound, strings.ToLower(r.Method),
			schema.GroupResource{Group: group, Resource: rest[0]}, "", "", 0, true)
	}
	rest = append(rest, "", "")
	req.name, req.subresource = rest[1], rest[2]
	return req, req.selectors()
}

func groupVersion(parts []string) (group, version string, rest []string) {
	switch {
	case len(parts) >= 2 && parts[0] == "api":
		return "", parts[1], parts[2:]
	case len(parts) >= 3 && parts[0] == "apis":
		return parts[1], parts[2], parts[3:]
	}
	return "", "", nil
}

func (r *request) selectors() error {
	var err error
	if r.labels, err = labels.Parse(r.query.Get("labelSelector")); err != nil {
		return apierrors.NewBadRequest("label selector: " + err.Error())
	}
	if r.fields, err = fields.ParseSelector(r.query.Get("fieldSelector")); err != nil {
		return apierrors.NewBadRequest("field selector: " + err.Error())
	}
	r.dryRun = r.query.Get("dryRun") == "All"
	return nil
}

// matches says whether the request is about the object: its namespace, name and selectors.
func (r *request) matches(obj Object) bool {
	switch {
	case obj == nil,
		r.namespace != "" && r.namespace != obj.GetNamespace(),
		r.name != "" && r.name != obj.GetName():
		return false
	}
	return r.labels.Matches(labels.Set(obj.GetLabels())) && r.fields.Matches(r.resource.fieldsOf(obj))
}

// kindOfObject is the resource, with its subresource if there is one.
func (r *request) kindOfObject() string {
	if r.subresource != "" {
		return r.resource.Plural + "/" + r.subresource
	}
	return r.resource.Plural
}

func (r *request) watching() bool {
	return slices.Contains([]string{"1", "true"}, r.query.Get("watch"))
}
