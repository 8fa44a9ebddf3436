// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"encoding/json"
	"mime"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// format is how a client wants its answer: as objects, as a table, or with no more of objects than their metadata.
type format struct {
	info            runtime.SerializerInfo
	table, metadata bool
}

// negotiate picks the first format in the Accept header that the API can serve; without one it is JSON.
func negotiate(accept string) (format, bool) {
	if strings.TrimSpace(accept) == "" {
		accept = runtime.ContentTypeJSON
	}
	for clause := range strings.SplitSeq(accept, ",") {
		mediaType, params, err := mime.ParseMediaType(strings.TrimSpace(clause))
		if err != nil {
			continue
		}
		if mediaType == "*/*" || mediaType == "application/*" {
			mediaType = runtime.ContentTypeJSON
		}
		info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
		if !ok {
			continue
		}
		switch as := params["as"]; {
		case as == "":
			return format{info: info}, true
		case as == "Table" && params["v"] == "v1" && mediaType == runtime.ContentTypeJSON:
			return format{info: info, table: true}, true
		case strings.HasPrefix(as, "PartialObjectMetadata") && params["v"] == "v1" && mediaType == runtime.ContentTypeJSON:
			return format{info: info, metadata: true}, true
		}
	}
	return format{}, false
}

func formatOf(r *http.Request) (format, error) {
	f, ok := negotiate(r.Header.Get("Accept"))
	if !ok {
		return f, apierrors.NewGenericServerResponse(http.StatusNotAcceptable, "get", groupResourceNone, "",
			"only JSON, YAML, protobuf, and in JSON tables and metadata are served", 0, true)
	}
	return f, nil
}

// writeObject answers with one object, in the form that the client wants.
func writeObject(w http.ResponseWriter, r *request, status int, answer any) {
	f, err := formatOf(r.Request)
	if err != nil {
		writeError(w, r.Request, err)
		return
	}
	obj, ok := answer.(Object)
	if f.table && ok {
		writeJSON(w, status, r.resource.Table.of(r, []Object{obj}, obj.GetResourceVersion()))
		return
	}
	if f.metadata && ok {
		writeJSON(w, status, metadataOf(obj))
		return
	}
	encode(w, f.info, status, answer.(runtime.Object)) //nolint:forcetypeassert // Answers are objects or Status.
}

// writeList answers with a list of objects.
func writeList(w http.ResponseWriter, r *request, objects []Object, version uint64) {
	f, err := formatOf(r.Request)
	if err != nil {
		writeError(w, r.Request, err)
		return
	}
	if f.table {
		writeJSON(w, http.StatusOK, r.resource.Table.of(r, objects, strconv.FormatUint(version, 10)))
		return
	}
	if f.metadata {
		list := &metav1.PartialObjectMetadataList{Items: make([]metav1.PartialObjectMetadata, 0, len(objects))}
		list.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList"))
		list.ResourceVersion = strconv.FormatUint(version, 10)
		for _, obj := range objects {
			list.Items = append(list.Items, *metadataOf(obj))
		}
		writeJSON(w, http.StatusOK, list)
		return
	}
	list, err := listOf(r.resource, objects, version)
	if err != nil {
		writeError(w, r.Request, err)
		return
	}
	encode(w, f.info, http.StatusOK, list)
}

// metadataOf is an object without what it is about.
func metadataOf(obj Object) *metav1.PartialObjectMetadata {
	partial := meta.AsPartialObjectMetadata(obj)
	partial.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
	return partial
}

func listOf(r *Resource, objects []Object, version uint64) (runtime.Object, error) {
	list := r.NewList()
	items := make([]runtime.Object, 0, len(objects))
	for _, obj := range objects {
		items = append(items, obj)
	}
	if err := meta.SetList(list, items); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	accessor.SetResourceVersion(strconv.FormatUint(version, 10))
	kind := r.GroupVersionKind()
	kind.Kind += "List"
	list.GetObjectKind().SetGroupVersionKind(kind)
	return list, nil
}

// encode writes an object with its own type: the serializers are used without conversion, so stored objects stay untouched.
func encode(w http.ResponseWriter, info runtime.SerializerInfo, status int, obj runtime.Object) {
	w.Header().Set("Content-Type", info.MediaType)
	w.WriteHeader(status)
	// The only failure left is a client that went away.
	_ = info.Serializer.Encode(obj, w)
}

func writeJSON(w http.ResponseWriter, status int, answer any) {
	data, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, "encode answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(status)
	// As above.
	_, _ = w.Write(append(data, '\n'))
}

// writeError answers with a Status, in the client's encoding if that is one the API serves.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	if seconds := status.Details; seconds != nil && seconds.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(seconds.RetryAfterSeconds)))
	}
	if f, ok := negotiate(r.Header.Get("Accept")); ok {
		encode(w, f.info, int(status.Code), status)
		return
	}
	writeJSON(w, int(status.Code), status)
}

func statusOf(err error) *metav1.Status {
	code, message := outcome(err)
	status := &metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Message: message, Reason: apierrors.ReasonForError(err)}
	if known, ok := err.(apierrors.APIStatus); ok { // Errors reach the client unwrapped.
		given := known.Status()
		status = &given
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return status
}
