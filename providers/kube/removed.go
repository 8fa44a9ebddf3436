// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DeprecatedAPI is an API that somebody has asked an API server for since that started, although it is deprecated.
type DeprecatedAPI struct {
	Group, Version, Resource string

	// RemovedIn is the minor version that has it no more, such as 1.36; empty if nobody has decided that.
	RemovedIn string
}

// String names it as people do.
func (d DeprecatedAPI) String() string {
	return strings.TrimPrefix(fmt.Sprintf("%s/%s %s", d.Group, d.Version, d.Resource), "/")
}

// deprecatedMetric is how an API server counts what it is asked for and deprecated.
const deprecatedMetric = "apiserver_requested_deprecated_apis{"

var metricLabel = regexp.MustCompile(`(\w+)="([^"]*)"`)

func (c *connection) DeprecatedAPIs(ctx context.Context) ([]DeprecatedAPI, error) {
	result := c.clients.Discovery().RESTClient().Get().AbsPath("/metrics").Do(ctx)
	if apierrors.IsNotFound(result.Error()) {
		return nil, nil // It tells no metrics.
	}
	data, err := result.Raw()
	if err != nil {
		return nil, fmt.Errorf("reading the metrics of the API server: %w", err)
	}
	return deprecatedAPIs(data), nil
}

// deprecatedAPIs reads the metrics of an API server.
func deprecatedAPIs(metrics []byte) []DeprecatedAPI {
	var found []DeprecatedAPI
	lines := bufio.NewScanner(bytes.NewReader(metrics))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		labels, value, ok := strings.Cut(strings.TrimPrefix(lines.Text(), deprecatedMetric), "}")
		if !ok || !strings.HasPrefix(lines.Text(), deprecatedMetric) || strings.TrimSpace(value) == "0" {
			continue
		}
		api := DeprecatedAPI{}
		fields := map[string]*string{"group": &api.Group, "version": &api.Version, "resource": &api.Resource, "removed_release": &api.RemovedIn}
		for _, label := range metricLabel.FindAllStringSubmatch(labels, -1) {
			if field := fields[label[1]]; field != nil {
				*field = label[2]
			}
		}
		found = append(found, api)
	}
	slices.SortFunc(found, func(a, b DeprecatedAPI) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Resource, b.Resource))
	})
	return slices.Compact(found)
}

// Stored says whether objects of an API are stored, which nobody can read any more once the API is gone.
func (c *connection) Stored(ctx context.Context, group, version, resource string) (bool, error) {
	result := c.clients.Discovery().RESTClient().Get().AbsPath(apiPath(group, version), resource).Param("limit", "1").Do(ctx)
	if apierrors.IsNotFound(result.Error()) {
		return false, nil // This API server does not serve it.
	}
	data, err := result.Raw()
	if err != nil {
		return false, fmt.Errorf("listing %s of %s/%s: %w", resource, group, version, err)
	}
	list := &metav1.PartialObjectMetadataList{}
	if err := json.Unmarshal(data, list); err != nil {
		return false, fmt.Errorf("listing %s of %s/%s: %w", resource, group, version, err)
	}
	return len(list.Items) > 0, nil
}

// apiPath is where an API server serves a group and version.
func apiPath(group, version string) string {
	if group == "" {
		return "/api/" + version
	}
	return "/apis/" + group + "/" + version
}
