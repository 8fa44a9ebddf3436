// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
)

// bodyLimit is the real API server's.
const bodyLimit = 3 << 20

func readBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, bodyLimit+1))
	switch {
	case err != nil:
		return nil, apierrors.NewBadRequest("read body: " + err.Error())
	case len(body) > bodyLimit:
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", bodyLimit))
	}
	return body, nil
}

// write carries out a changing request.
func (a *API) write(r *request, body []byte) (int, any, error) {
	if made := a.subresource(r); made != nil {
		return made(r, body)
	}
	switch {
	case r.subresource != "" && (r.subresource != "status" || r.resource.CopyStatus == nil):
		return 0, nil, apierrors.NewNotFound(r.resource.GroupResource(), r.name+"/"+r.subresource)
	case r.Method == http.MethodPost && r.name == "":
		return a.create(r, body)
	case r.Method == http.MethodPut && r.name != "":
		return a.update(r, func(Object) (Object, error) { return decode(r.resource, body) })
	case r.Method == http.MethodPatch && r.name != "":
		return a.patch(r, body)
	case r.Method == http.MethodDelete && r.name != "":
		return a.delete(r, body)
	}
	return 0, nil, apierrors.NewMethodNotSupported(r.resource.GroupResource(), strings.ToLower(r.Method))
}

// subresource is what makes an object of a subresource; nil if nothing does.
func (a *API) subresource(r *request) func(*request, []byte) (int, any, error) {
	switch {
	case r.Method != http.MethodPost:
	case r.resource == Pods && r.subresource == "eviction":
		return a.evict
	case r.resource == ServiceAccounts && r.subresource == "token":
		return a.requestToken
	}
	return nil
}

func (a *API) create(r *request, body []byte) (int, any, error) {
	obj, err := decode(r.resource, body)
	if err != nil {
		return 0, nil, err
	}
	if r.resource.Namespaced {
		if _, err := a.store.Get(Namespaces, "", r.namespace); err != nil {
			return 0, nil, err
		}
		obj.SetNamespace(r.namespace)
	}
	created, err := a.store.as(a.keysFor(r)).Create(r.resource, r.track(nil, obj), r.dryRun)
	if err != nil {
		return 0, nil, err
	}
	r.entry.Describe("name", created.GetName())
	return http.StatusCreated, created, nil
}

// update changes an object, or its status alone: neither request touches the other's part.
func (a *API) update(r *request, change func(Object) (Object, error)) (int, any, error) {
	updated, err := a.store.as(a.keysFor(r)).Update(r.resource, r.namespace, r.name, r.dryRun, func(old Object) (Object, error) {
		now, err := change(old.DeepCopyObject().(Object)) //nolint:forcetypeassert // A copy is of the same type.
		if err != nil {
			return nil, err
		}
		if r.resource.CopyStatus == nil {
			return r.track(old, now), nil
		}
		if r.subresource == "" {
			r.resource.CopyStatus(old, now)
			return r.track(old, now), nil
		}
		old.SetResourceVersion(now.GetResourceVersion())
		r.resource.CopyStatus(now, old)
		return old, nil
	})
	if err != nil {
		return 0, nil, err
	}
	if node, ok := updated.(*corev1.Node); ok {
		r.entry.Describe("unschedulable", strconv.FormatBool(node.Spec.Unschedulable))
	}
	return http.StatusOK, updated, nil
}

func (a *API) patch(r *request, body []byte) (int, any, error) {
	if r.isApply() {
		return a.apply(r, body)
	}
	return a.update(r, func(old Object) (Object, error) { return patch(r, old, body) })
}

// patch applies one of the three classical patches.
func patch(r *request, old Object, body []byte) (Object, error) {
	before, err := json.Marshal(old)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return nil, apierrors.NewBadRequest("content type: " + err.Error())
	}
	after, err := applyPatch(types.PatchType(mediaType), before, body, r.resource)
	if err != nil {
		return nil, err
	}
	return decode(r.resource, after)
}

func applyPatch(kind types.PatchType, before, body []byte, r *Resource) (after []byte, err error) {
	switch kind {
	case types.JSONPatchType:
		var operations jsonpatch.Patch
		if operations, err = jsonpatch.DecodePatch(body); err == nil {
			after, err = operations.Apply(before)
		}
	case types.MergePatchType:
		after, err = jsonpatch.MergePatch(before, body)
	case types.StrategicMergePatchType:
		after, err = strategicpatch.StrategicMergePatch(before, body, r.New())
	default:
		return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch",
			r.GroupResource(), "", fmt.Sprintf("patch type %q is not served", kind), 0, true)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("patch: " + err.Error())
	}
	return after, nil
}

func (a *API) delete(r *request, body []byte) (int, any, error) {
	options, err := deleteOptions(r, body)
	if err != nil {
		return 0, nil, err
	}
	if r.resource == Pods {
		return a.deletePod(r, options)
	}
	if err := a.preconditions(r, options); err != nil {
		return 0, nil, err
	}
	deleted, err := a.store.Delete(r.resource, r.namespace, r.name, r.dryRun)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess,
		Details:  &metav1.StatusDetails{Name: r.name, Group: r.resource.Group, Kind: r.resource.Plural, UID: deleted.GetUID()},
	}, nil
}

// deletePod only begins the end of the pod, unless the client wants it gone at once.
func (a *API) deletePod(r *request, options *metav1.DeleteOptions) (int, any, error) {
	if err := a.preconditions(r, options); err != nil {
		return 0, nil, err
	}
	pod, err := a.store.Get(Pods, r.namespace, r.name)
	if err != nil {
		return 0, nil, err
	}
	r.dryRun = r.dryRun || len(options.DryRun) > 0
	if !r.dryRun {
		a.DeletePod(pod, options.GracePeriodSeconds)
	}
	return http.StatusOK, pod, nil
}

func (a *API) preconditions(r *request, options *metav1.DeleteOptions) error {
	if options.Preconditions == nil {
		return nil
	}
	obj, err := a.store.Get(r.resource, r.namespace, r.name)
	if err != nil {
		return err
	}
	uid, version := options.Preconditions.UID, options.Preconditions.ResourceVersion
	if uid != nil && *uid != obj.GetUID() || version != nil && *version != obj.GetResourceVersion() {
		return apierrors.NewConflict(r.resource.GroupResource(), r.name, errors.New("the preconditions are not met"))
	}
	return nil
}

func deleteOptions(r *request, body []byte) (*metav1.DeleteOptions, error) {
	options := &metav1.DeleteOptions{}
	if len(body) > 0 {
		kind := schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, &kind, options); err != nil {
			return nil, apierrors.NewBadRequest("delete options: " + err.Error())
		}
	}
	if seconds, err := strconv.ParseInt(r.query.Get("gracePeriodSeconds"), 10, 64); err == nil {
		options.GracePeriodSeconds = &seconds
	}
	return options, nil
}

// decode reads an object of the resource in any encoding.
func decode(r *Resource, body []byte) (Object, error) {
	kind := r.GroupVersionKind()
	decoded, actual, err := scheme.Codecs.UniversalDeserializer().Decode(body, &kind, r.New())
	if err != nil {
		return nil, apierrors.NewBadRequest("decode: " + err.Error())
	}
	obj, ok := decoded.(Object)
	if !ok || *actual != kind {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object is a %s, want a %s", actual, kind))
	}
	return obj, nil
}
