// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/fleet"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// Resources that a caller has to be able to list to see something.
const (
	clustersResource   = "talosclusters"
	machinesResource   = "talosmachines"
	operationsResource = "talosoperations"
)

// catchUp is how long something that is asked for by name is waited for, if it is not known: who has just created it asks the informers
// before they have heard of it.
const catchUp = time.Second

var errNotSynced = errors.New("the hub has not read everything yet; ask again in a moment")

// invalidField says that a request asks for what cannot be.
func invalidField(field, value, allowed string) error {
	return problem(&InvalidError{Field: field, Value: value, Allowed: allowed})
}

// Live is a Backend that loads a fleet for each call, and gives watches one that goes on changing instead.
type Live interface {
	// Live is Backend's Fleet for a watch: it changes until the call ends, or longer.
	Live(ctx context.Context, namespaces ...string) (*fleet.Fleet, []*pb.Failure, error)
}

// reading is one call that reads: whose it is, and what there is to read.
type reading struct {
	*Session

	fleet    *fleet.Fleet
	failures []*pb.Failure

	// named are the namespaces that the caller asked for; nothing is all that there are.
	named []string

	// mark is the fingerprint of what the caller may read, once that was asked.
	mark string

	// query is the fingerprint of what was asked for.
	query string
}

// token is where a watch goes on from a revision. It is of no use to one that sees something else; empty if nothing goes on.
func (r *reading) token(revision uint64) string {
	token := r.fleet.Token(revision)
	if token == "" {
		return ""
	}
	return token + ":" + r.sight()
}

// sight tells what a watch sees from what another one does: what its caller may read, and what was asked for.
func (r *reading) sight() string { return r.mark + "-" + r.query }

// read begins a call that reads.
func (s *Server) read(ctx context.Context, named []string) (*reading, error) {
	return s.readFrom(ctx, s.Backend.Fleet, named)
}

// readLive begins a call that watches.
func (s *Server) readLive(ctx context.Context, named []string) (*reading, error) {
	if live, ok := s.Backend.(Live); ok {
		return s.readFrom(ctx, live.Live, named)
	}
	return s.read(ctx, named)
}

func (s *Server) readFrom(ctx context.Context, load func(context.Context, ...string) (*fleet.Fleet, []*pb.Failure, error), named []string) (*reading, error) {
	session, err := s.Backend.Session(ctx)
	if err != nil {
		return nil, problem(err)
	}
	known, failures, err := load(ctx, named...)
	if err != nil {
		return nil, problem(err)
	}
	if !known.Synced() {
		return nil, connect.NewError(connect.CodeUnavailable, errNotSynced)
	}
	select {
	case <-known.Closed():
		return nil, connect.NewError(connect.CodeUnavailable, known.Cause())
	default:
	}
	return &reading{Session: session, fleet: known, failures: failures, named: named}, nil
}

// namespaces are those that are read.
func (r *reading) namespaces() []string {
	if len(r.named) > 0 {
		return r.named
	}
	return r.fleet.Namespaces()
}

// look asks what the caller may read. A namespace that was asked for by name and may not be read is an error, since to leave out all that was
// asked for would say that there is nothing. What could not be judged is among the failures of the call then, and left out.
func (r *reading) look(ctx context.Context, audience ...string) (views, error) {
	seen := views{}
	for i, resource := range audience {
		readable, failures := r.readable(ctx, resource, i == 0)
		if err := context.Cause(ctx); err != nil { // Nobody hears of what could not be found out in time, but that the time is over.
			return nil, problem(err)
		}
		r.failures = slices.Concat(r.failures, failures)
		for _, namespace := range r.namespaces() {
			if readable[namespace] {
				seen[namespace] |= 1 << i
			} else if i == 0 && len(r.named) > 0 && !slices.ContainsFunc(failures, func(f *pb.Failure) bool { return f.GetScope().GetNamespace() == namespace }) {
				return nil, r.denied(resource, namespace)
			}
		}
	}
	r.mark = seen.fingerprint()
	return seen, nil
}

// readable says where the caller may list a resource. It may have to be everywhere that they named.
func (r *reading) readable(ctx context.Context, resource string, needed bool) (map[string]bool, []*pb.Failure) {
	if len(r.named) > 0 {
		return r.readableOf(ctx, resource, r.named, needed)
	}
	return r.Session.readable(ctx, resource, nil, r.namespaces())
}

func (r *reading) denied(resource, namespace string) error {
	return connect.NewError(connect.CodePermissionDenied, fmt.Errorf("user %q may not list %s in namespace %q", r.Caller.Name, resource, namespace))
}

// those are the items of a list that the caller may read and a filter selects.
func those[M referred](items []M, seen views, selected selection[M]) []M {
	return slices.DeleteFunc(items, func(item M) bool { return !seen.sees(item.GetRef().GetNamespace(), 0) || !selected.selects(item) })
}

// mayGet asks whether the caller may read one object.
func (r *reading) mayGet(ctx context.Context, resource string, key types.NamespacedName) error {
	return r.Rights.May(ctx, authorizationv1.ResourceAttributes{
		Verb: "get", Group: v1alpha1.GroupVersion.Group, Resource: resource, Namespace: key.Namespace, Name: key.Name,
	})
}

// missing says that something is not there, or why nobody knows.
func (r *reading) missing(what string, key types.NamespacedName, help string) error {
	for _, failure := range r.failures {
		if namespace := failure.GetScope().GetNamespace(); namespace == "" || namespace == key.Namespace {
			return connect.NewError(connect.CodeUnavailable, fmt.Errorf("%s %q of namespace %q is not known: %s", what, key.Name, key.Namespace, failure.GetMessage()))
		}
	}
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no %s %q in namespace %q; list them with: %s", what, key.Name, key.Namespace, help))
}

// await waits a moment for something that has just been created.
func (r *reading) await(ctx context.Context, there func() bool) {
	revision := r.fleet.Last()
	if there() || !r.fleet.Changes() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	for !there() {
		changes, more, ok := r.fleet.After(revision, make([]fleet.Change, 0, 1))
		if ok && len(changes) > 0 {
			revision++
			continue
		}
		select {
		case <-more:
		case <-r.fleet.Closed():
			return
		case <-ctx.Done():
			return
		}
	}
}

// key reads a reference to one object.
func (s *Server) key(field string, ref *pb.Reference) (types.NamespacedName, error) {
	if err := s.checkReference(field, ref); err != nil {
		return types.NamespacedName{}, err
	}
	if ref.GetName() == "" {
		return types.NamespacedName{}, invalidField(field+".name", "", "the name of an object")
	}
	if problems := validation.IsDNS1123Subdomain(strings.ToLower(ref.GetName())); len(problems) > 0 { // Nodes may have upper case.
		return types.NamespacedName{}, invalidField(field+".name", ref.GetName(), "lower-case letters, digits, dashes and dots, a letter or a digit first and last")
	}
	return types.NamespacedName{Namespace: ref.GetNamespace(), Name: ref.GetName()}, nil
}

// checkReference checks a reference, that may do without a name.
func (s *Server) checkReference(field string, ref *pb.Reference) error {
	switch {
	case ref.GetHub() != "" && ref.GetHub() != s.Hub.GetName():
		return invalidField(field+".hub", ref.GetHub(), "empty, for the hub that is asked")
	case ref.GetNamespace() == "":
		return invalidField(field+".namespace", "", "the namespace of the object")
	}
	return checkNamespace(field+".namespace", ref.GetNamespace())
}

// mostNames is how many names a list in a request may have: each of them costs something, for each object that is looked through.
const mostNames = 1000

func checkLength(field string, length int) error {
	if length > mostNames {
		return invalidField(field, fmt.Sprintf("%d names", length), fmt.Sprintf("at most %d", mostNames))
	}
	return nil
}

// checkNamespace refuses what no namespace is named.
func checkNamespace(field, namespace string) error {
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return invalidField(field, namespace, "1 to 63 lower-case letters, digits and dashes, no dash first or last")
	}
	return nil
}

// named are the namespaces that a request asks for by name: those that it lists, or else those of the objects that it names.
func (s *Server) named(field string, namespaces []string, references map[string][]*pb.Reference) ([]string, error) {
	if err := checkLength(field, len(namespaces)); err != nil {
		return nil, err
	}
	asked := map[string]bool{}
	for _, namespace := range namespaces {
		if namespace == "" {
			return nil, invalidField(field, "", "the name of a namespace")
		}
		if err := checkNamespace(field, namespace); err != nil {
			return nil, err
		}
		asked[namespace] = true
	}
	for _, field := range slices.Sorted(maps.Keys(references)) {
		if err := checkLength(field, len(references[field])); err != nil {
			return nil, err
		}
		for i, ref := range references[field] {
			if err := s.checkReference(fmt.Sprintf("%s[%d]", field, i), ref); err != nil {
				return nil, err
			}
			if len(namespaces) > 0 && !asked[ref.GetNamespace()] {
				return nil, invalidField(fmt.Sprintf("%s[%d].namespace", field, i), ref.GetNamespace(), "one of the namespaces that the filter names")
			}
			asked[ref.GetNamespace()] = true
		}
	}
	return slices.Sorted(maps.Keys(asked)), nil
}
