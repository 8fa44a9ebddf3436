// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

var groupResourceNone = schema.GroupResource{}

var allVerbs = metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}

func versionInfo(of string) version.Info {
	parts := strings.SplitN(strings.TrimPrefix(of, "v"), ".", 3)
	parts = append(parts, "", "")
	return version.Info{
		Major: parts[0], Minor: parts[1], GitVersion: of, GitTreeState: "clean",
		Compiler: "gc", Platform: "linux/amd64",
	}
}

// serveDiscovery serves the documents that clients find resources by. The aggregated form is not served; clients fall back.
func (a *API) serveDiscovery(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodGet {
		return false
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) == 1 && parts[0] == "": // Cluster API asks it whether the server lives.
		writeJSON(w, http.StatusOK, metav1.RootPaths{Paths: []string{"/api", "/api/v1", "/apis", "/healthz", "/livez", "/readyz", "/version"}})
	case len(parts) == 1 && parts[0] == "api":
		writeJSON(w, http.StatusOK, coreVersions())
	case len(parts) == 1 && parts[0] == "apis":
		writeJSON(w, http.StatusOK, groupList())
	case len(parts) == 2 && parts[0] == "api":
		writeResources(w, r, "", parts[1])
	case len(parts) == 2 && parts[0] == "apis":
		writeGroup(w, r, parts[1])
	case len(parts) == 3 && parts[0] == "apis":
		writeResources(w, r, parts[1], parts[2])
	default:
		return false
	}
	return true
}

func coreVersions() *metav1.APIVersions {
	return &metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"},
		Versions: []string{"v1"},
	}
}

func groupList() *metav1.APIGroupList {
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	list.Groups = append(list.Groups, group(&Resource{Group: authenticationGroup.Group, Version: authenticationGroup.Version}))
	for _, r := range resources {
		known := slices.ContainsFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == r.Group })
		if r.Group != "" && !known {
			list.Groups = append(list.Groups, group(r))
		}
	}
	return list
}

func group(r *Resource) metav1.APIGroup {
	v := metav1.GroupVersionForDiscovery{GroupVersion: r.Group + "/" + r.Version, Version: r.Version}
	return metav1.APIGroup{Name: r.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v}
}

func writeGroup(w http.ResponseWriter, r *http.Request, name string) {
	found := find(func(r *Resource) bool { return r.Group == name })
	if name == authenticationGroup.Group {
		found = &Resource{Group: name, Version: authenticationGroup.Version}
	}
	if found == nil || name == "" {
		writeError(w, r, apierrors.NewNotFound(groupResourceNone, r.URL.Path))
		return
	}
	g := group(found)
	g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
	writeJSON(w, http.StatusOK, g)
}

func writeResources(w http.ResponseWriter, r *http.Request, group, version string) {
	list := &metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: strings.TrimPrefix(group+"/"+version, "/"),
	}
	for _, res := range resources {
		if res.Group == group && res.Version == version {
			list.APIResources = append(list.APIResources, describe(res)...)
		}
	}
	if list.GroupVersion == authenticationGroup.String() {
		list.APIResources = append(list.APIResources, reviews)
	}
	if list.APIResources == nil {
		writeError(w, r, apierrors.NewNotFound(groupResourceNone, r.URL.Path))
		return
	}
	writeJSON(w, http.StatusOK, list)
}

func describe(r *Resource) []metav1.APIResource {
	list := []metav1.APIResource{{
		Name: r.Plural, SingularName: strings.ToLower(r.Kind), Kind: r.Kind, Namespaced: r.Namespaced,
		ShortNames: r.ShortNames, Verbs: allVerbs,
	}}
	if r.CopyStatus != nil {
		list = append(list, metav1.APIResource{
			Name: r.Plural + "/status", Kind: r.Kind, Namespaced: r.Namespaced, Verbs: metav1.Verbs{"get", "patch", "update"},
		})
	}
	if r == ServiceAccounts {
		list = append(list, tokensOf)
	}
	if r == Pods {
		list = append(list, metav1.APIResource{
			Name: "pods/eviction", Group: "policy", Version: "v1", Kind: "Eviction", Namespaced: true, Verbs: metav1.Verbs{"create"},
		})
	}
	return list
}
