// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ichor.maesh.dev/hub/hub/audit"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// auditResource is what a caller has to be able to list to see the audit of a namespace.
const auditResource = "auditentries"

// Audited is a Backend that has the audit: of some namespaces, or of all that there are if none is named. What a caller may see of it is
// asked of the session's Rights.
type Audited interface {
	Audit(ctx context.Context, namespaces ...string) (*audit.Log, []*pb.Failure, error)
}

// LiveAudited is a Backend that loads the audit for each call, and gives watches one that goes on until the call ends, or longer.
type LiveAudited interface {
	LiveAudit(ctx context.Context, namespaces ...string) (*audit.Log, []*pb.Failure, error)
}

// auditReading is one call that reads the audit.
type auditReading struct {
	*Session

	log      *audit.Log
	filter   audit.Filter
	failures []*pb.Failure

	// named are the namespaces that the caller asked for; nothing is all that there are.
	named []string
}

// readAudit begins a call that reads the audit.
func (s *Server) readAudit(ctx context.Context, wanted *pb.AuditFilter, live bool) (*auditReading, error) {
	filter, err := audit.NewFilter(wanted)
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	named, err := s.named("filter.namespaces", wanted.GetNamespaces(), map[string][]*pb.Reference{"filter.clusters": wanted.GetClusters()})
	if err != nil {
		return nil, err
	}
	session, err := s.Backend.Session(ctx)
	if err != nil {
		return nil, problem(err)
	}
	log, failures, err := s.auditOf(ctx, live, named)
	if err != nil {
		return nil, problem(err)
	}
	if !log.Synced() {
		return nil, connect.NewError(connect.CodeUnavailable, errNotSynced)
	}
	return &auditReading{Session: session, log: log, filter: filter, failures: failures, named: named}, nil
}

func (s *Server) auditOf(ctx context.Context, live bool, named []string) (*audit.Log, []*pb.Failure, error) {
	if backend, ok := s.Backend.(LiveAudited); ok && live {
		return backend.LiveAudit(ctx, named...)
	}
	backend, ok := s.Backend.(Audited)
	if !ok {
		return nil, nil, connect.NewError(connect.CodeUnimplemented, errors.New("this hub keeps no audit"))
	}
	return backend.Audit(ctx, named...)
}

// readable are the namespaces whose audit the caller may read. One that was asked for by name and may not be read is an error.
func (r *auditReading) readable(ctx context.Context, namespaces []string) (map[string]bool, []*pb.Failure, error) {
	var named []string
	if len(r.named) > 0 {
		named = namespaces
	}
	readable, failures := r.Session.readable(ctx, auditResource, named, namespaces)
	if err := context.Cause(ctx); err != nil {
		return nil, nil, problem(err)
	}
	for _, namespace := range r.named {
		unknown := slices.ContainsFunc(failures, func(f *pb.Failure) bool { return f.GetScope().GetNamespace() == namespace })
		if slices.Contains(namespaces, namespace) && !readable[namespace] && !unknown {
			return nil, nil, connect.NewError(connect.CodePermissionDenied,
				fmt.Errorf("user %q may not list %s in namespace %q", r.Caller.Name, auditResource, namespace))
		}
	}
	return readable, failures, nil
}

// namespaces are those that are read.
func (r *auditReading) namespaces() []string {
	if len(r.named) > 0 {
		return r.named
	}
	return r.log.Namespaces()
}

// ListAudit lists entries, the newest first.
func (s *Server) ListAudit(ctx context.Context, request *connect.Request[pb.ListAuditRequest]) (*connect.Response[pb.ListAuditResponse], error) {
	page, err := pagingOf(request.Msg.GetPage(), request.Msg.GetFilter())
	if err != nil {
		return nil, err
	}
	from, err := auditPlace(page.from, request.Msg.GetPage().GetToken())
	if err != nil {
		return nil, err
	}
	r, err := s.readAudit(ctx, request.Msg.GetFilter(), false)
	if err != nil {
		return nil, err
	}
	readable, failures, err := r.readable(ctx, r.namespaces())
	if err != nil {
		return nil, err
	}
	response := &pb.ListAuditResponse{Failures: slices.Concat(r.failures, failures)}
	var last *audit.Entry
	for _, entry := range slices.Backward(r.log.Entries()) {
		if !readable[entry.Namespace] || !r.filter.Selects(entry) {
			continue
		}
		response.TotalSize++
		switch {
		case from != nil && audit.Compare(entry, from) >= 0:
		case len(response.GetEntries()) < page.size:
			response.Entries = append(response.Entries, entry.Message)
			last = entry
		case response.GetNextPageToken() == "":
			response.NextPageToken = auditToken(last, page.query)
		}
	}
	return connect.NewResponse(response), nil
}

// auditPlace is the last entry of the page before, as far as a place says it; nil without a page before.
func auditPlace(last *place, token string) (*audit.Entry, error) {
	if last == nil {
		return nil, nil //nolint:nilnil // There is no page before, and nothing wrong.
	}
	at, err := time.Parse(time.RFC3339Nano, string(last.Key))
	if err != nil {
		return nil, invalidField("page.token", token, "next_page_token of an answer, or empty for the beginning")
	}
	return &audit.Entry{Time: at, Namespace: last.Namespace, Name: last.Name}, nil
}

func auditToken(last *audit.Entry, query string) string {
	data, err := json.Marshal(place{Key: []byte(last.Time.UTC().Format(time.RFC3339Nano)), Namespace: last.Namespace, Name: last.Name, Query: query})
	if err != nil {
		return "" // Names always marshal.
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

// WatchAudit sends the entries that there are, as they were written, and then every one that comes.
func (s *Server) WatchAudit(ctx context.Context, request *connect.Request[pb.WatchAuditRequest], stream *connect.ServerStream[pb.WatchAuditResponse]) error {
	r, err := s.readAudit(ctx, request.Msg.GetFilter(), true)
	if err != nil {
		return err
	}
	if len(r.failures) > 0 {
		return connect.NewError(connect.CodeUnavailable, errors.New(r.failures[0].GetMessage()))
	}
	w := &auditWatch{auditReading: r, send: stream.Send, every: cmp.Or(s.Watch.Heartbeat, defaultHeartbeat), now: s.Now}
	return w.run(ctx, request.Msg.GetResumeToken())
}

// auditWatch is one stream of entries. Where it is, is the version of the last entry: it is the same for every replica, and after a restart.
type auditWatch struct {
	*auditReading

	send  func(*pb.WatchAuditResponse) error
	every time.Duration
	now   func() time.Time

	at    uint64
	quiet *time.Timer
}

func (w *auditWatch) run(ctx context.Context, token string) error {
	if _, _, err := w.readable(ctx, w.named); err != nil {
		return err
	}
	w.quiet = time.NewTimer(w.every)
	defer w.quiet.Stop()
	if err := w.resume(ctx, token); err != nil {
		return err
	}
	from := w.at
	entries, place := w.log.After(from)
	if err := w.sendAll(ctx, entries); err != nil {
		return err
	}
	if err := w.tell(&pb.WatchAuditResponse{Event: &pb.WatchAuditResponse_Synced{Synced: &pb.Synced{}}}); err != nil {
		return err
	}
	return w.follow(ctx, from, place)
}

// resume finds where a token is. One that is ahead of what is known is from a replica that has heard more, for a moment; or from a management
// API that has been put back since, and then everything is sent anew.
func (w *auditWatch) resume(ctx context.Context, token string) error {
	if token == "" {
		return nil
	}
	at, err := strconv.ParseUint(token, 10, 64)
	if err == nil && w.catchUp(ctx, at) {
		w.at = at
		return nil
	}
	return w.tell(&pb.WatchAuditResponse{Event: &pb.WatchAuditResponse_Reset_{Reset_: &pb.Reset{}}})
}

// catchUp waits a moment for the log to have heard of a version.
func (w *auditWatch) catchUp(ctx context.Context, version uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	for {
		_, _, more := w.log.Since(0)
		if w.log.Latest() >= version {
			return true
		}
		select {
		case <-more:
		case <-w.log.Closed():
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// follow sends what comes, until something ends the watch. What was written before the beginning was sent to somebody already.
func (w *auditWatch) follow(ctx context.Context, from, place uint64) error {
	var expired <-chan time.Time
	if !w.Caller.Expires.IsZero() {
		expired = time.After(w.Caller.Expires.Sub(w.now()))
	}
	for {
		entries, next, more := w.log.Since(place)
		place = next
		entries = slices.DeleteFunc(slices.Clone(entries), func(entry *audit.Entry) bool { return entry.Version <= from })
		if err := w.sendAll(ctx, entries); err != nil {
			return err
		}
		select {
		case <-more:
		case <-w.quiet.C:
			beat := &pb.Heartbeat{ServerTime: timestamppb.New(w.now())}
			if err := w.tell(&pb.WatchAuditResponse{Event: &pb.WatchAuditResponse_Heartbeat{Heartbeat: beat}}); err != nil {
				return err
			}
		case <-expired:
			return connect.NewError(connect.CodeUnauthenticated, errors.New("the session is over; sign in again"))
		case <-w.log.Closed():
			return connect.NewError(connect.CodeUnavailable, w.log.Cause())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// sendAll sends those entries that are wanted and that the caller may read now.
func (w *auditWatch) sendAll(ctx context.Context, entries []*audit.Entry) error {
	concerned := map[string]bool{}
	for _, entry := range entries {
		concerned[entry.Namespace] = true
	}
	if len(concerned) == 0 {
		return nil
	}
	readable, failures, err := w.readable(ctx, slices.Sorted(maps.Keys(concerned)))
	if err != nil {
		return err
	}
	if len(failures) > 0 { // Left out, the entry would never come.
		return connect.NewError(connect.CodeUnavailable, errors.New(failures[0].GetMessage()))
	}
	for _, entry := range entries {
		w.at = max(w.at, entry.Version)
		if readable[entry.Namespace] && w.filter.Selects(entry) {
			if err := w.tell(&pb.WatchAuditResponse{Event: &pb.WatchAuditResponse_Entry{Entry: entry.Message}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// tell sends a response, and puts the next heartbeat off.
func (w *auditWatch) tell(response *pb.WatchAuditResponse) error {
	response.ResumeToken = strconv.FormatUint(w.at, 10)
	w.quiet.Reset(w.every)
	return w.send(response)
}
