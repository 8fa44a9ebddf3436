// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Who refuses.
const (
	byRBAC      = "RBAC"
	byAdmission = "admission" // The policies, mostly.
)

// refusal is something that the hub asked for in its own name, and was not to have.
type refusal struct {
	verb, group, resource string
	by                    string // byRBAC or byAdmission.
}

func (r refusal) String() string {
	text := r.verb + " " + r.resource
	if r.group != "" {
		text += " of " + r.group
	}
	return text + ", by " + r.by
}

// ending is how the API server refuses to create something in a namespace that goes away. It is nobody's lack of a right.
const ending = "because it is being terminated"

// refusedOf is what the hub was refused, and how; false if it was not.
func refusedOf(e *auditv1.Event) (r refusal, how string, refused bool) {
	if !over(e) || !inItsName(e) || e.ResponseStatus == nil || e.ResponseStatus.Code != http.StatusForbidden {
		return refusal{}, "", false
	}
	r = refusal{verb: e.Verb, resource: e.RequestURI, by: byRBAC}
	if e.ObjectRef != nil {
		r.group, r.resource = e.ObjectRef.APIGroup, resourceOf(e)
	}
	if e.Annotations[decisionAnnotation] == allow {
		r.by = byAdmission
	}
	return r, fmt.Sprintf("%s: %s", e.RequestURI, e.ResponseStatus.Message), !strings.Contains(e.ResponseStatus.Message, ending)
}
