// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"ichor.maesh.dev/hub/hub/fleet"
)

// WatchOptions say how watches behave. Zero takes the default.
type WatchOptions struct {
	// Heartbeat is after how long a watch on which nothing happens gives a sign of life: 15 s.
	Heartbeat time.Duration

	// Rights is how often is asked what the caller may still read: 10 s.
	Rights time.Duration
}

const (
	defaultHeartbeat = 15 * time.Second
	defaultRights    = 10 * time.Second

	// doubt is how long a watch goes on with what its caller might read, while nobody can say whether they still may.
	doubt = time.Minute

	// atOnce is how many changes are read at once.
	atOnce = 64
)

// audience are the resources that decide what a caller sees of a watch. Who may not read the first one of a namespace sees nothing of it.
type audience []string

// views are what a caller may read: for each namespace a bit for each resource.
type views map[string]uint8

func (v views) sees(namespace string, resource int) bool { return v[namespace]&(1<<resource) != 0 }

// fingerprint tells what a caller sees from what they saw when a token was made.
func (v views) fingerprint() string {
	hash := fnv.New32a()
	for _, namespace := range slices.Sorted(maps.Keys(v)) {
		if v.sees(namespace, 0) {
			_, _ = hash.Write(append([]byte(namespace), 0, v[namespace])) // It never fails.
		}
	}
	return strconv.FormatUint(uint64(hash.Sum32()), 36)
}

// watch is one stream: what its caller may read of what its filter selects, and how it changes.
type watch struct {
	*reading

	audience audience
	sink     sink
	options  WatchOptions
	now      func() time.Time

	views views
	sure  time.Time // When views were last known for certain.
	at    uint64    // The revision up to which all was sent.
	told  bool      // All that there was has been sent, and was said to be.
	quiet *time.Timer
}

// sink turns what happens into the responses of one kind of watch, and sends them.
type sink interface {
	// all sends everything in some namespaces, as it is at a revision. token is where to go on until all of it was sent.
	all(w *watch, in func(namespace string) bool, token string) (revision uint64, err error)

	// change sends a change. after is where to go on once all of it was sent, before is where to go on until then.
	change(w *watch, change *fleet.Change, before, after string) error

	synced(w *watch, token string) error
	reset(w *watch) error
	heartbeat(w *watch, token string) error
}

// watch sends what there is, or goes on after a token, and then every change, until ctx or the fleet ends.
func (s *Server) watch(ctx context.Context, r *reading, token string, to sink, audience ...string) error {
	w := &watch{reading: r, audience: audience, sink: to, options: s.Watch, now: s.Now}
	w.options.Heartbeat = cmp.Or(w.options.Heartbeat, defaultHeartbeat)
	w.options.Rights = cmp.Or(w.options.Rights, defaultRights)
	w.quiet = time.NewTimer(w.options.Heartbeat)
	defer w.quiet.Stop()
	for _, failure := range r.failures {
		if failure.GetCode() != connect.CodePermissionDenied.String() { // What may not be read is left out; what could not be read may come.
			return connect.NewError(connect.CodeUnavailable, errors.New(failure.GetMessage()))
		}
	}
	if err := w.look(ctx); err != nil {
		return err
	}
	if err := w.begin(token); err != nil {
		return err
	}
	return w.run(ctx)
}

// begin goes on after a token if that is possible, and sends everything otherwise.
func (w *watch) begin(token string) error {
	revision, ok := w.resume(token)
	switch {
	case ok:
		w.at = revision
		return nil
	case token != "":
		return w.restart()
	}
	return w.send()
}

// resume is the revision of a token. It is none if the caller sees something else by now, or asked for something else then.
func (w *watch) resume(token string) (revision uint64, ok bool) {
	i := strings.LastIndex(token, ":")
	if i < 0 || token[i+1:] != w.sight() {
		return 0, false
	}
	return w.fleet.Revision(token[:i])
}

// restart sends everything anew: the changes since are not known any more.
func (w *watch) restart() error {
	if err := w.sink.reset(w); err != nil {
		return err
	}
	return w.send()
}

func (w *watch) send() error {
	revision, err := w.sink.all(w, func(string) bool { return true }, "")
	if err != nil {
		return err
	}
	w.at, w.told = revision, true
	return w.sink.synced(w, w.token(revision))
}

// run sends changes until something ends the watch.
func (w *watch) run(ctx context.Context) error {
	rights := time.NewTicker(w.options.Rights)
	defer rights.Stop()
	expired := w.expiry()
	buffer := make([]fleet.Change, 0, atOnce)
	for {
		changes, more, ok := w.fleet.After(w.at, buffer)
		if !ok {
			if err := w.restart(); err != nil {
				return err
			}
			continue
		}
		if err := w.take(ctx, changes); err != nil {
			return err
		}
		if len(changes) > 0 {
			more = already
		} else if err := w.tell(); err != nil {
			return err
		}
		if err := w.wait(ctx, more, rights.C, expired); err != nil {
			return err
		}
	}
}

// already is a channel on which nobody waits.
var already = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// wait waits for something to do, and does it unless it is a change.
func (w *watch) wait(ctx context.Context, more <-chan struct{}, rights, expired <-chan time.Time) error {
	select {
	case <-w.fleet.Closed():
		return connect.NewError(connect.CodeUnavailable, w.fleet.Cause())
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-expired:
		return connect.NewError(connect.CodeUnauthenticated, errors.New("the session is over; sign in again"))
	case <-rights:
		return w.look(ctx)
	case <-w.quiet.C:
		return w.sink.heartbeat(w, w.token(w.at))
	case <-more:
		return nil
	}
}

// expiry tells when the caller's session is over; never if it has no end.
func (w *watch) expiry() <-chan time.Time {
	if w.Caller.Expires.IsZero() {
		return nil
	}
	return time.After(w.Caller.Expires.Sub(w.now()))
}

// sent puts the next heartbeat off.
func (w *watch) sent() { w.quiet.Reset(w.options.Heartbeat) }

// tell says once that all was sent, where a watch went on after a token.
func (w *watch) tell() error {
	if w.told {
		return nil
	}
	w.told = true
	return w.sink.synced(w, w.token(w.at))
}

// take sends changes that the caller may see.
func (w *watch) take(ctx context.Context, changes []fleet.Change) error {
	for i := range changes {
		namespace := changes[i].Key.Namespace
		if _, asked := w.views[namespace]; !asked && len(w.named) == 0 {
			if err := w.look(ctx, namespace); err != nil { // The first of its namespace, or the last: there may be none by now.
				return err
			}
		}
		if w.views.sees(namespace, 0) {
			if err := w.sink.change(w, &changes[i], w.token(w.at), w.token(w.at+1)); err != nil {
				return err
			}
		}
		w.at++
	}
	return nil
}

// look asks what the caller may read by now, also in some namespaces that were not asked about before, and sends what that changes.
func (w *watch) look(ctx context.Context, more ...string) error {
	now, certain, err := w.ask(ctx, w.concerned(more))
	if err != nil {
		return err
	}
	if certain {
		w.sure = w.now()
	} else if w.now().Sub(w.sure) > doubt {
		return connect.NewError(connect.CodeUnavailable, fmt.Errorf("nobody can say whether user %q may still read %s", w.Caller.Name, w.audience[0]))
	}
	before, token := w.views, w.token(w.at)
	w.views, w.mark = now, now.fingerprint()
	if before == nil {
		return nil // The watch begins.
	}
	return w.adjust(before, token)
}

// concerned are the namespaces to ask about: those that there are, and those that there were when a change happened.
func (w *watch) concerned(more []string) []string {
	if len(w.named) > 0 {
		return w.named
	}
	namespaces := slices.Concat(w.namespaces(), more)
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// ask asks what the caller may read in namespaces. What nobody can say now is as it was, and then it is not certain.
func (w *watch) ask(ctx context.Context, namespaces []string) (now views, certain bool, err error) {
	now, certain = make(views, len(namespaces)), true
	for i, resource := range w.audience {
		readable, failures := w.Session.readable(ctx, resource, w.named, namespaces)
		if err := context.Cause(ctx); err != nil {
			return nil, false, problem(err)
		}
		unknown := map[string]bool{}
		for _, failure := range failures {
			unknown[failure.GetScope().GetNamespace()] = true
			certain = false
		}
		for _, namespace := range namespaces {
			sees := readable[namespace] || ((unknown[namespace] || unknown[""]) && w.views.sees(namespace, i))
			switch {
			case sees:
				now[namespace] |= 1 << i
			case i == 0 && len(w.named) > 0 && certain:
				return nil, false, w.denied(resource, namespace)
			default:
				now[namespace] |= 0 // It was asked about.
			}
		}
	}
	return now, certain, nil
}

// adjust sends what the caller sees from now on; if they see less than before, or otherwise, it begins anew. Until that is done, token is
// where to go on.
func (w *watch) adjust(before views, token string) error {
	var changed []string
	for namespace, view := range w.views {
		if view != before[namespace] {
			changed = append(changed, namespace)
		}
	}
	switch {
	case len(changed) == 0:
		return nil
	case slices.ContainsFunc(changed, func(namespace string) bool { return before.sees(namespace, 0) }):
		return w.restart() // What was deleted there since nobody can be told.
	}
	_, err := w.sink.all(w, func(namespace string) bool { return slices.Contains(changed, namespace) }, token)
	return err
}
