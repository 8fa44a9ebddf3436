// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// watcher is one watch request under way.
type watcher struct {
	*request
	store   *Store
	stream  *eventStream
	version uint64 // All changes up to this one have been sent.
}

// watch serves a watch: the present state first if the client wants it, then every change.
func (a *API) watch(w http.ResponseWriter, r *request) {
	f, err := formatOf(r.Request)
	if err != nil {
		writeError(w, r.Request, err)
		return
	}
	watcher := &watcher{request: r, store: a.store}
	initial, err := watcher.start()
	if err != nil {
		writeError(w, r.Request, err)
		return
	}
	watcher.stream = newEventStream(w, r, f)
	ctx, cancel := r.timeout()
	defer cancel()
	if watcher.sendInitial(initial) == nil {
		watcher.follow(ctx)
	}
}

func (r *request) timeout() (context.Context, context.CancelFunc) {
	if seconds, err := strconv.Atoi(r.query.Get("timeoutSeconds")); err == nil && seconds > 0 {
		return context.WithTimeout(r.Context(), time.Duration(seconds)*time.Second)
	}
	return context.WithCancel(r.Context())
}

// start finds the version to begin after, and the objects to begin with.
func (w *watcher) start() ([]Object, error) {
	text := w.query.Get("resourceVersion")
	if text == "" || text == "0" || w.query.Get("sendInitialEvents") == "true" {
		objects, version := w.store.List(w.resource, w.namespace)
		w.version = version
		return objects, nil
	}
	version, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return nil, apierrors.NewBadRequest("resource version: " + err.Error())
	}
	w.version = version
	return nil, w.store.reaches(version)
}

func (w *watcher) sendInitial(objects []Object) error {
	for _, obj := range objects {
		if !w.matches(obj) {
			continue
		}
		if err := w.stream.send(watch.Added, obj); err != nil {
			return err
		}
	}
	if w.query.Get("sendInitialEvents") == "true" {
		return w.bookmark()
	}
	return w.stream.flush()
}

// bookmark ends the initial events.
func (w *watcher) bookmark() error {
	mark := w.resource.New()
	mark.GetObjectKind().SetGroupVersionKind(w.resource.GroupVersionKind())
	mark.SetResourceVersion(strconv.FormatUint(w.version, 10))
	mark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return w.stream.send(watch.Bookmark, mark)
}

func (w *watcher) follow(ctx context.Context) {
	for {
		changes, version, wake, err := w.store.since(w.resource, w.version)
		if err != nil {
			_ = w.stream.send(watch.Error, statusOf(err))
			return
		}
		if w.sendChanges(changes) != nil {
			return
		}
		w.version = version
		select {
		case <-wake:
		case <-ctx.Done():
			return
		}
	}
}

// sendChanges shows an object that comes into the selection as added, and one that leaves it as deleted.
func (w *watcher) sendChanges(changes []change) error {
	for _, c := range changes {
		before, after := c.old != nil && w.matches(c.old), c.kind != watch.Deleted && w.matches(c.now)
		var err error
		switch {
		case before && after:
			err = w.stream.send(watch.Modified, c.now)
		case after:
			err = w.stream.send(watch.Added, c.now)
		case before:
			err = w.stream.send(watch.Deleted, c.now)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eventStream frames watch events in the client's encoding.
type eventStream struct {
	w      http.ResponseWriter
	r      *request
	format format
	frame  interface{ Write([]byte) (int, error) }
	first  bool
}

func newEventStream(w http.ResponseWriter, r *request, f format) *eventStream {
	mediaType := f.info.MediaType
	if mediaType != runtime.ContentTypeJSON {
		mediaType += ";stream=watch"
	}
	w.Header().Set("Content-Type", mediaType)
	w.WriteHeader(http.StatusOK)
	s := &eventStream{w: w, r: r, format: f, first: true}
	s.frame = f.info.StreamSerializer.NewFrameWriter(w)
	return s
}

func (s *eventStream) send(kind watch.EventType, obj runtime.Object) error {
	if s.format.table && kind != watch.Error {
		obj = s.row(obj)
	}
	if s.format.metadata && kind != watch.Error {
		obj = metadataOf(obj.(Object)) //nolint:forcetypeassert // As in row.
	}
	var inner, outer bytes.Buffer
	if err := s.format.info.Serializer.Encode(obj, &inner); err != nil {
		return fmt.Errorf("encode object: %w", err)
	}
	event := &metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: inner.Bytes()}}
	if err := s.format.info.StreamSerializer.Encode(event, &outer); err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	if _, err := s.frame.Write(outer.Bytes()); err != nil {
		return err
	}
	return s.flush()
}

// row makes a table of one row; only the first one has the columns.
func (s *eventStream) row(obj runtime.Object) runtime.Object {
	one := obj.(Object) //nolint:forcetypeassert // All that is watched but Status is an Object.
	t := s.r.resource.Table.of(s.r, []Object{one}, one.GetResourceVersion())
	if !s.first {
		t.ColumnDefinitions = nil
	}
	s.first = false
	return t
}

func (s *eventStream) flush() error { return http.NewResponseController(s.w).Flush() }
