// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/config/rbac"
)

// use is something that a role has allowed.
type use struct {
	role string // As in roleName.
	verb string

	group, resource, name string
	path                  string
}

// The annotations by which the API server says what its authorizer decided, and why.
const (
	decisionAnnotation = "authorization.k8s.io/decision"
	reasonAnnotation   = "authorization.k8s.io/reason"
	allow              = "allow"
)

var (
	// hubUsers are the names of the hub: of a standalone one, and of a pod.
	hubUsers = regexp.MustCompile(`^(ichor-hub|system:serviceaccount:[^:]+:ichor-hub)$`)

	// hubProgram begins the name by which the hub's own binary tells what it is. Tests that use the hub's credentials have other names.
	hubProgram = "ichor-hub"

	// reasons tells which role it was: RBAC: allowed by RoleBinding "ops/team-a" of ClusterRole "ichor-operator" to Group "ops".
	reasons = regexp.MustCompile(`^RBAC: allowed by (?:Cluster)?RoleBinding ".*" of (ClusterRole|Role) "([^"]+)" to `)

	hubRole = roleName("ClusterRole", rbac.HubRole)
)

// over says whether an event tells how a request was decided: at its end or, where that is far away, when the answer begins.
func over(e *auditv1.Event) bool {
	return e.Stage == auditv1.StageResponseComplete || e.Stage == auditv1.StageResponseStarted
}

// byHub says whether the hub itself asked, in its own name or in another's.
func byHub(e *auditv1.Event) bool {
	return hubUsers.MatchString(e.User.Username) && strings.HasPrefix(e.UserAgent, hubProgram)
}

// inItsName says whether the hub itself asked for itself.
func inItsName(e *auditv1.Event) bool { return byHub(e) && e.ImpersonatedUser == nil }

// asHub says whether somebody else asked who had, or took, the name of the hub: a test. It shows nothing about the hub.
func asHub(e *auditv1.Event) bool {
	if e.ImpersonatedUser != nil {
		return hubUsers.MatchString(e.ImpersonatedUser.Username)
	}
	return hubUsers.MatchString(e.User.Username) && !byHub(e)
}

// usesOf are all rights that an event shows the use of.
func usesOf(e *auditv1.Event) ([]use, error) {
	if !over(e) || asHub(e) {
		return nil, nil
	}
	var all []use
	if byHub(e) {
		all = impersonations(e)
	}
	if e.Annotations[decisionAnnotation] != allow {
		return all, nil
	}
	reviewed, err := reviews(e)
	if err != nil {
		return nil, err
	}
	all = append(all, reviewed...)
	allowedBy, ok := roleOf(e.Annotations[reasonAnnotation])
	if !ok {
		return all, nil // An administrator, whom nothing restricts.
	}
	all = append(all, asked(e, allowedBy))
	policies, err := checked(e, allowedBy)
	return append(all, policies...), err
}

func roleOf(reason string) (string, bool) {
	parts := reasons.FindStringSubmatch(reason)
	if parts == nil {
		return "", false
	}
	return roleName(parts[1], parts[2]), true
}

// asked is what was asked for.
func asked(e *auditv1.Event, role string) use {
	if e.ObjectRef == nil {
		path, _, _ := strings.Cut(e.RequestURI, "?")
		return use{role: role, verb: e.Verb, path: path}
	}
	return use{role: role, verb: e.Verb, group: e.ObjectRef.APIGroup, resource: resourceOf(e), name: e.ObjectRef.Name}
}

func resourceOf(e *auditv1.Event) string {
	if e.ObjectRef.Subresource == "" {
		return e.ObjectRef.Resource
	}
	return e.ObjectRef.Resource + "/" + e.ObjectRef.Subresource
}

// Names of groups and accounts that the API server adds by itself.
const (
	authenticated   = "system:authenticated"
	serviceAccounts = "system:serviceaccounts"
	accountPrefix   = "system:serviceaccount:"
)

// impersonations are what the API server asked RBAC before the hub acted as somebody: about the user, each group, the UID and all else that
// is known of them. Whatever came of the request, these were allowed.
func impersonations(e *auditv1.Event) []use {
	who := e.ImpersonatedUser
	if who == nil {
		return nil
	}
	as := func(group, resource, name string) use {
		return use{role: hubRole, verb: "impersonate", group: group, resource: resource, name: name}
	}
	const authentication = "authentication.k8s.io"
	all := []use{as("", "users", who.Username)}
	if account, ok := strings.CutPrefix(who.Username, accountPrefix); ok {
		_, name, _ := strings.Cut(account, ":")
		all = []use{as("", "serviceaccounts", name)}
	}
	for _, group := range who.Groups {
		if group != authenticated && group != serviceAccounts && !strings.HasPrefix(group, serviceAccounts+":") {
			all = append(all, as("", "groups", group))
		}
	}
	if who.UID != "" {
		all = append(all, as(authentication, "uids", who.UID))
	}
	for key, values := range who.Extra {
		for _, value := range values {
			all = append(all, as(authentication, "userextras/"+key, value))
		}
	}
	return all
}

// reviews is what the hub was told that somebody may do. It serves them from its memory, so that no request follows which would show it.
func reviews(e *auditv1.Event) ([]use, error) {
	if !byHub(e) || e.ObjectRef == nil || e.ObjectRef.Resource != "subjectaccessreviews" || e.ResponseObject == nil {
		return nil, nil
	}
	review := &authorizationv1.SubjectAccessReview{}
	if err := json.Unmarshal(e.ResponseObject.Raw, review); err != nil {
		return nil, fmt.Errorf("reading the answer to a SubjectAccessReview: %w", err)
	}
	role, ok := roleOf(review.Status.Reason)
	if !review.Status.Allowed || !ok || hubUsers.MatchString(review.Spec.User) {
		return nil, nil
	}
	switch what := review.Spec; {
	case what.ResourceAttributes != nil:
		a := what.ResourceAttributes
		resource := a.Resource
		if a.Subresource != "" {
			resource += "/" + a.Subresource
		}
		return []use{{role: role, verb: a.Verb, group: a.Group, resource: resource, name: a.Name}}, nil
	case what.NonResourceAttributes != nil:
		return []use{{role: role, verb: what.NonResourceAttributes.Verb, path: what.NonResourceAttributes.Path}}, nil
	}
	return nil, nil
}

// recorded are the resources whose status, by policy ichor-status, is written by who has the verb record on them.
var recorded = []string{"etcdsnapshots", "talosclusters", "talosmachines", "talosoperations"}

// checked is what the admission policies (config/policies) asked RBAC before they let a request through. The API server says nothing of these
// questions in its audit; that the request succeeded shows what the answer was.
func checked(e *auditv1.Event, role string) ([]use, error) {
	ref := e.ObjectRef
	if ref == nil || ref.APIGroup != v1alpha1.GroupVersion.Group || e.ResponseStatus == nil || e.ResponseStatus.Code >= http.StatusMultipleChoices {
		return nil, nil
	}
	may := func(verb, resource string) use {
		return use{role: role, verb: verb, group: ref.APIGroup, resource: resource, name: ref.Name}
	}
	write := e.Verb == "update" || e.Verb == "patch"
	switch {
	case write && ref.Subresource == "status" && slices.Contains(recorded, ref.Resource):
		return []use{may(v1alpha1.RecordVerb, ref.Resource)}, nil
	case ref.Resource == "auditentries" && inItsName(e) && (e.Verb == "create" || e.Verb == "delete"):
		return []use{may(v1alpha1.RecordVerb, ref.Resource)}, nil
	case e.Verb == "create" && ref.Resource == "talosoperations" && ref.Subresource == "" && e.RequestObject != nil:
		op := &v1alpha1.TalosOperation{}
		if err := json.Unmarshal(e.RequestObject.Raw, op); err != nil {
			return nil, fmt.Errorf("reading the TalosOperation that was created: %w", err)
		}
		all := []use{may(v1alpha1.StartVerb, "talosoperations/"+op.Spec.StartSubresource())}
		if len(op.Spec.Overrides) > 0 {
			all = append(all, may(v1alpha1.OverrideVerb, "talosoperations"))
		}
		return all, nil
	}
	return nil, nil
}
