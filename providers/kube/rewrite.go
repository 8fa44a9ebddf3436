// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/retry"

	"ichor.maesh.dev/hub/providers/guard"
)

// Rewritten is how far a rewriting has come.
type Rewritten struct {
	// Count is how many objects were written.
	Count int

	// Last is the last one, as namespace/name, and More says whether there are others behind it.
	Last string
	More bool
}

// metadataOnly asks for lists without what is in the objects: the hub has no business with Secrets.
const metadataOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

// pageSize is how many objects are listed at once.
const pageSize = 250

// Rewrite has the API server write objects of a kind, such as secrets or deployments.apps, as they are: the first ones behind the object
// named after, at most limit. What is in them is not read. An object that has gone meanwhile, or was made anew, has been written by somebody
// else. It goes by the order of etcd's keys, so that any process can go on.
func (c *connection) Rewrite(ctx context.Context, kind, after string, limit int) (Rewritten, error) {
	resource, err := c.resourceOf(kind)
	if err != nil {
		return Rewritten{}, fmt.Errorf("finding the API of %s: %w", kind, err)
	}
	done := Rewritten{Last: after}
	next := ""
	for {
		page, err := c.page(ctx, resource, next)
		if err != nil {
			return done, fmt.Errorf("listing %s: %w", kind, err)
		}
		for i := range page.Items {
			key := etcdKeyOf(&page.Items[i])
			switch {
			case key <= done.Last:
				continue
			case done.Count >= limit:
				done.More = true
				return done, nil
			}
			if err := c.writeAgain(ctx, resource, &page.Items[i]); err != nil {
				return done, fmt.Errorf("writing %s %s again: %w", kind, key, err)
			}
			done.Count, done.Last = done.Count+1, key
		}
		if next = page.Continue; next == "" {
			return done, nil
		}
	}
}

// ReadAll lists the objects of a kind without what is in them. The API server has to read that for it.
func (c *connection) ReadAll(ctx context.Context, kind string) (int, error) {
	resource, err := c.resourceOf(kind)
	if err != nil {
		return 0, fmt.Errorf("finding the API of %s: %w", kind, err)
	}
	count, next := 0, ""
	for {
		page, err := c.page(ctx, resource, next)
		if err != nil {
			return count, fmt.Errorf("listing %s: %w", kind, err)
		}
		count += len(page.Items)
		if next = page.Continue; next == "" {
			return count, nil
		}
	}
}

// etcdKeyOf is an object as etcd sorts it.
func etcdKeyOf(object *metav1.PartialObjectMetadata) string {
	if object.Namespace == "" {
		return object.Name
	}
	return object.Namespace + "/" + object.Name
}

// apiResource is where the objects of a kind are.
type apiResource struct {
	schema.GroupVersionResource

	namespaced bool
}

// path is the way to the objects of a kind, or to one of them.
func (r apiResource) path(namespace, name string) []string {
	parts := []string{"/apis", r.Group, r.Version}
	if r.Group == "" {
		parts = []string{"/api", r.Version}
	}
	if namespace != "" {
		parts = append(parts, "namespaces", namespace)
	}
	parts = append(parts, r.Resource)
	if name != "" {
		parts = append(parts, name)
	}
	return parts
}

// secretsResource is where Secrets are.
var secretsResource = corev1.SchemeGroupVersion.WithResource(string(corev1.ResourceSecrets))

// errNotServed means that the API server does not serve a kind that it is told to encrypt.
var errNotServed = errors.New("the API server does not serve it, or lets nobody write it")

// resourceOf finds a kind by the name that it has in the encryption configuration: its plural, with its group behind a dot.
func (c *connection) resourceOf(kind string) (apiResource, error) {
	name, group, _ := strings.Cut(kind, ".")
	if name == string(corev1.ResourceSecrets) && group == "" {
		return apiResource{secretsResource, true}, nil
	}
	lists, err := discovery.ServerPreferredResources(c.clients.Discovery())
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) { // What an aggregated server does not tell is not in this etcd.
		return apiResource{}, err
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || version.Group != group {
			continue
		}
		for i := range list.APIResources {
			if found := &list.APIResources[i]; found.Name == name && slices.Contains(found.Verbs, "list") && slices.Contains(found.Verbs, "patch") {
				return apiResource{version.WithResource(name), found.Namespaced}, nil
			}
		}
	}
	return apiResource{}, errNotServed
}

// page lists objects without what is in them. A list that has become too old for the server goes on with what is there now.
func (c *connection) page(ctx context.Context, resource apiResource, next string) (*metav1.PartialObjectMetadataList, error) {
	list := func(next string) ([]byte, error) {
		request := c.clients.CoreV1().RESTClient().Get().AbsPath(resource.path("", "")...).SetHeader("Accept", metadataOnly).
			Param("limit", fmt.Sprint(pageSize))
		if next != "" {
			request = request.Param("continue", next)
		}
		return raw(request.Do(ctx))
	}
	data, err := list(next)
	var status apierrors.APIStatus
	if errors.As(err, &status) && apierrors.IsResourceExpired(err) && status.Status().ListMeta.Continue != "" {
		data, err = list(status.Status().ListMeta.Continue)
	}
	if err != nil {
		return nil, err
	}
	page := &metav1.PartialObjectMetadataList{}
	if err := json.Unmarshal(data, page); err != nil {
		return nil, errors.New("the answer is no list")
	}
	return page, nil
}

// writeAgain patches an object with what it is. The API server writes it if it would write it otherwise than it is in etcd, so one that the
// key of now has written stays.
func (c *connection) writeAgain(ctx context.Context, resource apiResource, object *metav1.PartialObjectMetadata) error {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": object.UID}})
	if err != nil {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		err := c.clients.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(resource.path(object.Namespace, object.Name)...).
			SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").Body(data).Do(guard.With(ctx, c.guard)).Error()
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case apierrors.IsConflict(err) && c.isAnother(ctx, resource, object):
			return nil
		}
		return err
	})
}

// isAnother says whether an object has gone, or is another one of the same name by now.
func (c *connection) isAnother(ctx context.Context, resource apiResource, object *metav1.PartialObjectMetadata) bool {
	data, err := raw(c.clients.CoreV1().RESTClient().Get().AbsPath(resource.path(object.Namespace, object.Name)...).
		SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").Do(ctx))
	now := &metav1.PartialObjectMetadata{}
	switch {
	case apierrors.IsNotFound(err):
		return true
	case err != nil || json.Unmarshal(data, now) != nil:
		return false
	}
	return now.UID != object.UID
}

// LegacyToken is a Secret with a token that nobody renews.
type LegacyToken struct {
	// Name is namespace/name.
	Name string

	// Created is when the Secret was made.
	Created time.Time
}

// LegacyTokens lists the Secrets that hold a token of a service account, in order.
func (c *connection) LegacyTokens(ctx context.Context) ([]LegacyToken, error) {
	var found []LegacyToken
	next := ""
	for {
		request := c.clients.CoreV1().RESTClient().Get().AbsPath("/api/v1/secrets").SetHeader("Accept", metadataOnly).
			Param("fieldSelector", "type="+string(corev1.SecretTypeServiceAccountToken)).Param("limit", fmt.Sprint(pageSize))
		if next != "" {
			request = request.Param("continue", next)
		}
		data, err := raw(request.Do(ctx))
		if err != nil {
			return nil, fmt.Errorf("listing Secrets with tokens: %w", err)
		}
		page := &metav1.PartialObjectMetadataList{}
		if err := json.Unmarshal(data, page); err != nil {
			return nil, errors.New("listing Secrets with tokens: the answer is no list")
		}
		for i := range page.Items {
			found = append(found, LegacyToken{Name: etcdKeyOf(&page.Items[i]), Created: page.Items[i].CreationTimestamp.UTC()})
		}
		if next = page.Continue; next == "" {
			slices.SortFunc(found, func(a, b LegacyToken) int { return strings.Compare(a.Name, b.Name) })
			return found, nil
		}
	}
}
