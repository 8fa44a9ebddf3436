// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/blang/semver/v4"

	"ichor.maesh.dev/hub/test/sim/fault"
)

// deprecated are the versions of APIs that somebody uses and this server still serves.
func (a *API) deprecated(r *http.Request) []fault.Fault {
	serves, err := semver.ParseTolerant(a.version(r))
	if err != nil {
		return nil
	}
	var list []fault.Fault
	for _, f := range a.Faults.Standing(fault.DeprecatedAPI, fault.Site{Cluster: a.Cluster}) {
		removed, err := semver.ParseTolerant(f.Params[fault.ParamRelease])
		if err == nil && (serves.Major < removed.Major || serves.Minor < removed.Minor) {
			list = append(list, f)
		}
	}
	return list
}

// serveMetrics serves the few metrics that somebody is known to read.
func (a *API) serveMetrics(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path != "/metrics" {
		return false
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	var text strings.Builder
	text.WriteString("# HELP apiserver_requested_deprecated_apis [STABLE] Gauge of deprecated APIs that have been requested.\n")
	text.WriteString("# TYPE apiserver_requested_deprecated_apis gauge\n")
	for _, f := range a.deprecated(r) {
		fmt.Fprintf(&text, "apiserver_requested_deprecated_apis{group=%q,removed_release=%q,resource=%q,subresource=\"\",version=%q} 1\n",
			f.Params[fault.ParamGroup], f.Params[fault.ParamRelease], f.Params[fault.ParamResource], f.Params[fault.ParamVersion])
	}
	_, _ = w.Write([]byte(text.String()))
	return true
}

// serveDeprecated lists the objects of such a version.
func (a *API) serveDeprecated(w http.ResponseWriter, r *http.Request) bool {
	for _, f := range a.deprecated(r) {
		group, version, resource := f.Params[fault.ParamGroup], f.Params[fault.ParamVersion], f.Params[fault.ParamResource]
		if r.Method != http.MethodGet || r.URL.Path != "/apis/"+group+"/"+version+"/"+resource {
			continue
		}
		kind := strings.TrimSuffix(resource, "s")
		items := []map[string]any{}
		count, _ := strconv.Atoi(f.Params[fault.ParamObjects])
		for i := range count {
			items = append(items, map[string]any{
				"apiVersion": group + "/" + version, "kind": kind, "metadata": map[string]any{"name": kind + "-" + strconv.Itoa(i+1)},
			})
		}
		w.Header().Set("Warning", fmt.Sprintf("299 - %q", fmt.Sprintf("%s/%s %s is deprecated, unavailable in v%s+", group, version, kind, f.Params[fault.ParamRelease])))
		writeJSON(w, http.StatusOK, map[string]any{
			"apiVersion": group + "/" + version, "kind": kind + "List", "metadata": map[string]any{"resourceVersion": "1"}, "items": items,
		})
		return true
	}
	return false
}
