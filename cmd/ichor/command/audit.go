// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ichor.maesh.dev/hub/cmd/ichor/follow"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// auditFlags are the flags of ichor audit.
type auditFlags struct {
	all, follow    bool
	limit          int
	since, until   string
	results        []string
	users, actions []string
	text           string
}

func newAuditCommand(a *app) *cobra.Command {
	var flags auditFlags
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List who did what, the newest first",
		Long: `List who did what, or tried to: the newest first, or with --follow as it happens.

--since and --until take a time such as 2026-11-29T08:00:00Z or 2026-11-29, or a duration before now such as 36h.`,
		Example: `  ichor audit --cluster prod-1 --since 24h
  ichor audit -A --result denied,failed --follow`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if flags.limit < 0 {
				return usageError("--limit %d is negative", flags.limit)
			}
			return a.connected(func(cmd *cobra.Command, _ []string) error {
				filter, err := a.auditFilter(flags)
				switch {
				case err != nil:
					return err
				case flags.follow:
					return a.followAudit(cmd.Context(), filter, flags)
				}
				return a.listAudit(cmd.Context(), filter, flags)
			})(cmd, args)
		},
	}
	f := cmd.Flags()
	addAllNamespaces(cmd, &flags.all)
	f.BoolVar(&flags.follow, "follow", false, "go on with what happens")
	f.IntVar(&flags.limit, "limit", 100, "how many entries; 0 is all that are kept")
	f.StringVar(&flags.since, "since", "", "not before this time")
	f.StringVar(&flags.until, "until", "", "not after this time")
	f.StringSliceVar(&flags.users, "user", nil, "users who did it")
	f.StringSliceVar(&flags.actions, "action", nil, "what was done, such as CreateOperation")
	f.StringSliceVar(&flags.results, "result", nil, "what came of it: done, denied, refused, failed")
	f.StringVar(&flags.text, "text", "", "text to look for, whatever its case")
	return cmd
}

func (a *app) auditFilter(flags auditFlags) (*pb.AuditFilter, error) {
	filter := &pb.AuditFilter{Users: flags.users, Actions: flags.actions, Text: flags.text}
	var err error
	if filter.Namespaces, filter.Clusters, err = a.scope(flags.all); err != nil {
		return nil, err
	}
	if filter.Results, err = values[pb.AuditResult]("--result", "AUDIT_RESULT_", pb.AuditResult_value, flags.results); err != nil {
		return nil, err
	}
	if filter.Since, err = a.moment("--since", flags.since); err != nil {
		return nil, err
	}
	filter.Until, err = a.moment("--until", flags.until)
	return filter, err
}

// moment reads a time, or a duration before now.
func (a *app) moment(flag, text string) (*timestamppb.Timestamp, error) {
	if text == "" {
		return nil, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return timestamppb.New(a.Now().Add(-ago)), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateTime, time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, a.Now().Location()); err == nil {
			return timestamppb.New(at), nil
		}
	}
	return nil, usageError("%s %q is neither a time such as 2026-11-29T08:00:00Z nor a duration such as 36h", flag, text)
}

func (a *app) listAudit(ctx context.Context, filter *pb.AuditFilter, flags auditFlags) error {
	list := &pb.ListAuditResponse{}
	token := ""
	for {
		size := int32(pageSize)
		if flags.limit > 0 {
			size = int32(min(flags.limit-len(list.GetEntries()), pageSize))
		}
		response, err := call(ctx, a, a.connection.audit.ListAudit, &pb.ListAuditRequest{Filter: filter, Page: &pb.Page{Size: size, Token: token}})
		if err != nil {
			return fmt.Errorf("listing the audit: %w", err)
		}
		list.Entries = append(list.Entries, response.GetEntries()...)
		list.TotalSize, list.Failures = response.GetTotalSize(), response.GetFailures()
		token = response.GetNextPageToken()
		if token == "" || flags.limit > 0 && len(list.GetEntries()) >= flags.limit {
			break
		}
	}
	items := make([]item, len(list.GetEntries()))
	for i, entry := range list.GetEntries() {
		items[i] = item{entry, entry.GetId()}
	}
	if err := a.printList(list, items, "Nothing was done, as far as it is kept.", func() table { return a.auditTable(list.GetEntries()) }); err != nil {
		return err
	}
	if more := int(list.GetTotalSize()) - len(list.GetEntries()); more > 0 {
		a.remark("%d older entries are not shown; see more with --limit.", more)
	}
	return a.partial(list.GetFailures())
}

func (a *app) auditTable(entries []*pb.AuditEntry) table {
	t := table{columns: columns("TIME", "USER", "ACTION", "CLUSTER", "ABOUT", "RESULT", "DETAIL", "+SOURCE", "+CLIENT")}
	for _, e := range entries {
		t.rows = append(t.rows, []string{
			a.clock(e.GetTime()), e.GetUser(), e.GetAction(), e.GetCluster().GetName(), cmp.Or(e.GetOperation().GetName(), e.GetMachine().GetName()),
			word("AUDIT_RESULT_", e.GetResult()), auditDetail(e), e.GetSource(), e.GetClient(),
		})
	}
	return t
}

// auditDetail is what was asked for, and why it was not done.
func auditDetail(e *pb.AuditEntry) string {
	parts := []string{e.GetDetail(), e.GetMessage()}
	for _, o := range e.GetOverrides() {
		parts = append(parts, fmt.Sprintf("override %s: %s", o.GetGate(), o.GetReason()))
	}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "; ")
}

// followAudit prints entries as they come, the oldest of those that there are first.
func (a *app) followAudit(ctx context.Context, filter *pb.AuditFilter, flags auditFlags) error {
	waiting, cancel := a.patience(ctx)
	defer cancel()
	printed := &auditLog{app: a, seen: map[string]bool{}, limit: flags.limit}
	stream := &follow.Stream[pb.WatchAuditResponse]{
		Open: func(ctx context.Context, token string) (follow.Receiver[pb.WatchAuditResponse], error) {
			return a.connection.audit.WatchAudit(ctx, connect.NewRequest(&pb.WatchAuditRequest{Filter: filter, ResumeToken: token}))
		},
		Token:  (*pb.WatchAuditResponse).GetResumeToken,
		Handle: printed.handle,
		Lost: func(err error) {
			a.remark("The %s does not answer (%s); trying again for %s.", a.connection.where, a.reason(err), follow.Patience)
		},
		Back: func() { a.remark("The %s answers again.", a.connection.where) },
	}
	err := stream.Run(waiting)
	switch {
	case ctx.Err() != nil:
		return &codedError{errors.New("interrupted"), exitInterrupted}
	case errors.Is(err, context.DeadlineExceeded):
		return nil // For as long as was asked.
	}
	return a.explain(err)
}

// auditLog prints each entry once.
type auditLog struct {
	*app

	limit  int
	synced bool
	first  []*pb.AuditEntry // Those that there are, until it is known how many.
	seen   map[string]bool
}

func (l *auditLog) handle(message *pb.WatchAuditResponse) (bool, error) {
	entry := message.GetEntry()
	switch {
	case message.GetSynced() != nil:
		return false, l.sync()
	case entry == nil || l.seen[entry.GetId()]:
		return false, nil
	}
	l.seen[entry.GetId()] = true
	if !l.synced {
		l.first = append(l.first, entry)
		return false, nil
	}
	return false, l.print(entry)
}

// sync prints the last of what there was when the watch began.
func (l *auditLog) sync() error {
	l.synced = true
	first := l.first
	l.first = nil
	slices.SortStableFunc(first, func(a, b *pb.AuditEntry) int { return a.GetTime().AsTime().Compare(b.GetTime().AsTime()) })
	if l.limit > 0 {
		first = first[max(len(first)-l.limit, 0):]
	}
	for _, entry := range first {
		if err := l.print(entry); err != nil {
			return err
		}
	}
	return nil
}

func (l *auditLog) print(e *pb.AuditEntry) error {
	if !l.forPeople() {
		return l.printItem(item{e, e.GetId()})
	}
	about := cmp.Or(e.GetOperation().GetName(), e.GetMachine().GetName(), e.GetCluster().GetName())
	fmt.Fprintln(l.Out, follow.Plain(strings.Join([]string{
		l.clock(e.GetTime()), e.GetUser(), e.GetAction(), about, word("AUDIT_RESULT_", e.GetResult()), auditDetail(e),
	}, "  ")))
	return nil
}
