// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"encoding/json"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// fieldManagers keeps Kubernetes' own field manager of each resource. They hold no state.
type fieldManagers struct {
	mu       sync.Mutex
	schemas  managedfields.TypeConverter
	managers map[*Resource]*managedfields.FieldManager
}

var managers = &fieldManagers{managers: map[*Resource]*managedfields.FieldManager{}}

// noDefaults is the defaulter of a server that stores what it gets.
type noDefaults struct{}

// Default implements runtime.ObjectDefaulter.
func (noDefaults) Default(runtime.Object) {}

func (f *fieldManagers) of(r *Resource) (*managedfields.FieldManager, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m, ok := f.managers[r]; ok {
		return m, nil
	}
	if f.schemas == nil {
		f.schemas = applyconfigurations.NewTypeConverter(scheme.Scheme)
	}
	kind := r.GroupVersionKind()
	m, err := managedfields.NewDefaultFieldManager(f.schemas, scheme.Scheme, noDefaults{}, scheme.Scheme, kind, kind.GroupVersion(), "", nil)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	f.managers[r] = m
	return m, nil
}

// Apply is that of the store.
func (w Writer) Apply(r *Resource, content map[string]any, manager string, force, dryRun bool) (obj Object, created bool, err error) {
	fields, err := managers.of(r)
	if err != nil {
		return nil, false, err
	}
	applied := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content)}
	merge := func(live Object) (Object, error) {
		merged, err := fields.Apply(live, applied, manager, force)
		if err != nil {
			return nil, err
		}
		return merged.(Object), nil //nolint:forcetypeassert // What was merged is of the same type.
	}
	obj, err = w.Update(r, applied.GetNamespace(), applied.GetName(), dryRun, merge)
	if !apierrors.IsNotFound(err) {
		return obj, false, err
	}
	empty := r.New()
	empty.GetObjectKind().SetGroupVersionKind(r.GroupVersionKind())
	if obj, err = merge(empty); err != nil {
		return nil, false, err
	}
	obj, err = w.Create(r, obj, dryRun)
	return obj, true, err
}

// CreateAs creates an object from its content, for a client of that name.
func (s *Store) CreateAs(r *Resource, content map[string]any, manager string) (Object, error) {
	obj := r.New()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, obj); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	fields, err := managers.of(r)
	if err != nil {
		return nil, err
	}
	empty := r.New()
	empty.GetObjectKind().SetGroupVersionKind(r.GroupVersionKind())
	return s.Create(r, fields.UpdateNoErrors(empty, obj, manager).(Object), false) //nolint:forcetypeassert // It is what was passed.
}

// isApply says whether a request is a server-side apply.
func (r *request) isApply() bool {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && r.Method == http.MethodPatch && mediaType == string(types.ApplyYAMLPatchType)
}

// apply serves a server-side apply.
func (a *API) apply(r *request, body []byte) (int, any, error) {
	content, err := r.appliedContent(body)
	if err != nil {
		return 0, nil, err
	}
	if r.resource.Namespaced {
		if _, err := a.store.Get(Namespaces, "", r.namespace); err != nil {
			return 0, nil, err
		}
	}
	force, _ := strconv.ParseBool(r.query.Get("force"))
	obj, created, err := a.store.as(a.keysFor(r)).Apply(r.resource, content, r.query.Get("fieldManager"), force, r.dryRun)
	switch {
	case err != nil:
		return 0, nil, err
	case created:
		return http.StatusCreated, obj, nil
	}
	return http.StatusOK, obj, nil
}

func (r *request) appliedContent(body []byte) (map[string]any, error) {
	if r.query.Get("fieldManager") == "" {
		return nil, apierrors.NewBadRequest("PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch")
	}
	plain, err := yaml.YAMLToJSON(body)
	if err != nil {
		return nil, apierrors.NewBadRequest("patch: " + err.Error())
	}
	applied := &unstructured.Unstructured{}
	if err := applied.UnmarshalJSON(plain); err != nil {
		return nil, apierrors.NewBadRequest("patch: " + err.Error())
	}
	if kind := r.resource.GroupVersionKind(); applied.GroupVersionKind() != kind {
		return nil, apierrors.NewBadRequest("the object is a " + applied.GroupVersionKind().String() + ", want a " + kind.String())
	}
	applied.SetName(r.name)
	applied.SetNamespace(r.namespace)
	return applied.Object, nil
}

// track notes which fields the client has changed, for objects of which that is kept.
func (r *request) track(old, now Object) Object {
	if !r.resource.Managed && (old == nil || len(old.GetManagedFields()) == 0) {
		now.SetManagedFields(nil)
		return now
	}
	fields, err := managers.of(r.resource)
	if err != nil {
		return now
	}
	if old == nil {
		old = r.resource.New()
	}
	old.GetObjectKind().SetGroupVersionKind(r.resource.GroupVersionKind())
	now.GetObjectKind().SetGroupVersionKind(r.resource.GroupVersionKind())
	return fields.UpdateNoErrors(old, now, r.manager()).(Object) //nolint:forcetypeassert // It is what was passed.
}

// manager is the name under which the client changes fields.
func (r *request) manager() string {
	if name := r.query.Get("fieldManager"); name != "" {
		return name
	}
	agent, _, _ := strings.Cut(r.UserAgent(), "/")
	return agent
}

// nameIn is the name in an object's text; it is what a request to create is about.
func nameIn(body []byte) string {
	var named struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(body, &named) // Other encodings have no name to tell here.
	return named.Metadata.Name
}
