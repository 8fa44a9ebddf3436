// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// Log is what the management API knows of the audit, rendered once for all who read it. It is safe for concurrent use.
type Log struct {
	mu      sync.Mutex
	known   map[types.NamespacedName]*Entry
	byTime  []*Entry      // Oldest first; never changed in place but by appending.
	arrived []*Entry      // As they came.
	stale   bool          // byTime and arrived do not say what known does.
	place   uint64        // Of the last one that came.
	latest  uint64        // The highest version ever seen.
	changed chan struct{} // Closed when an entry has come.

	synced, closed chan struct{}
	cause          error // Why it was closed.
}

// ErrStopping is why watches end when their hub does.
var ErrStopping = errors.New("the hub is stopping; ask again")

// Entry is an entry that nobody may change.
type Entry struct {
	// Message is what is sent.
	Message *pb.AuditEntry

	// Namespace and Name are those of the object.
	Namespace, Name string

	// Time is when it happened, as the entry says.
	Time time.Time

	// Version orders entries of one management API as they were written, whoever reads them.
	Version uint64

	place uint64
}

// NewLog returns an empty log.
func NewLog() *Log {
	return &Log{
		known: map[types.NamespacedName]*Entry{}, changed: make(chan struct{}), synced: make(chan struct{}), closed: make(chan struct{}),
	}
}

// Load reads the entries of some namespaces, of all if none is named.
func Load(ctx context.Context, reader client.Reader, namespaces ...string) (*Log, error) {
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	l := NewLog()
	for _, namespace := range namespaces {
		list := &v1alpha1.AuditEntryList{}
		if err := reader.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("reading the audit: %w", err)
		}
		for i := range list.Items {
			l.Put(&list.Items[i])
		}
	}
	l.MarkSynced()
	return l, nil
}

// Start feeds the log from an informer until ctx ends, and closes it then.
func (l *Log) Start(ctx context.Context, informers cache.Informers) error {
	defer l.Close(ErrStopping)
	informer, err := informers.GetInformer(ctx, &v1alpha1.AuditEntry{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching the audit: %w", err)
	}
	handler, err := informer.AddEventHandler(l.Handler())
	if err != nil {
		return fmt.Errorf("watching the audit: %w", err)
	}
	defer func() { _ = informer.RemoveEventHandler(handler) }() // Its only error is that the informer has stopped.
	select {
	case <-ctx.Done():
		return nil
	case <-handler.HasSyncedChecker().Done():
	}
	l.MarkSynced()
	<-ctx.Done()
	return nil
}

// MarkSynced says that everything that there was has been read.
func (l *Log) MarkSynced() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.Synced() {
		close(l.synced)
	}
}

// Synced says whether everything that there was has been read.
func (l *Log) Synced() bool { return over(l.synced) }

// WaitForSync waits until everything that there was has been read.
func (l *Log) WaitForSync(ctx context.Context) error {
	select {
	case <-l.synced:
		return nil
	case <-l.closed:
		return l.cause
	case <-ctx.Done():
		return fmt.Errorf("reading the audit: %w", context.Cause(ctx))
	}
}

// Close says that nothing more will come, and why.
func (l *Log) Close(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !over(l.closed) {
		l.cause = cause
		close(l.closed)
	}
}

// Closed ends when nothing more will come; Cause is why.
func (l *Log) Closed() <-chan struct{} { return l.closed }

// Cause is why nothing more comes, once Closed has ended.
func (l *Log) Cause() error { return l.cause }

func over(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Handler feeds the log from an informer of AuditEntries. Entries do not change.
func (l *Log) Handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { l.put(object) },
		// One that was replaced while nobody watched.
		UpdateFunc: func(_, object any) { l.put(object) },
		DeleteFunc: func(object any) {
			if key, err := toolscache.DeletionHandlingObjectToName(object); err == nil {
				l.Remove(key.AsNamespacedName())
			}
		},
	}
}

func (l *Log) put(object any) {
	if entry, ok := object.(*v1alpha1.AuditEntry); ok {
		l.Put(entry)
	}
}

// Put adds an entry. One that is there already stays.
func (l *Log) Put(object *v1alpha1.AuditEntry) {
	key := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	version, _ := strconv.ParseUint(object.ResourceVersion, 10, 64) // Nobody's but a fake's is something else.
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, there := l.known[key]; there {
		return
	}
	l.place++
	entry := &Entry{Message: Render(object), Namespace: key.Namespace, Name: key.Name, Time: object.Spec.Time.Time, Version: version, place: l.place}
	l.known[key] = entry
	l.latest = max(l.latest, version)
	l.arrived = append(l.arrived, entry)
	if count := len(l.byTime); count > 0 && Compare(l.byTime[count-1], entry) > 0 {
		l.stale = true
	}
	l.byTime = append(l.byTime, entry)
	close(l.changed)
	l.changed = make(chan struct{})
}

// Remove takes an entry out.
func (l *Log) Remove(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, there := l.known[key]; there {
		delete(l.known, key)
		l.stale = true
	}
}

// Entries are all entries, oldest first.
func (l *Log) Entries() []*Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.order()
	return l.byTime
}

// Namespaces are those that there are entries of.
func (l *Log) Namespaces() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := map[string]bool{}
	for key := range l.known {
		found[key.Namespace] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// Latest is the highest version that the log has seen.
func (l *Log) Latest() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latest
}

// After are the entries that were written after a version, as they were written, and the place in the log to go on from.
func (l *Log) After(version uint64) (found []*Entry, place uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, entry := range l.known {
		if entry.Version > version {
			found = append(found, entry)
		}
	}
	slices.SortFunc(found, func(a, b *Entry) int { return cmp.Or(cmp.Compare(a.Version, b.Version), Compare(a, b)) })
	return found, l.place
}

// Since are the entries that came after a place in the log, the place to go on from, and what tells that there are more.
func (l *Log) Since(place uint64) (found []*Entry, next uint64, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.place > place {
		l.order()
		first, _ := slices.BinarySearchFunc(l.arrived, place+1, func(e *Entry, place uint64) int { return cmp.Compare(e.place, place) })
		found = l.arrived[first:]
	}
	return found, l.place, l.changed
}

// order makes the orders say what is known. Readers keep what they have.
func (l *Log) order() {
	if !l.stale {
		return
	}
	l.byTime = slices.SortedFunc(maps.Values(l.known), Compare)
	l.arrived = slices.SortedFunc(maps.Values(l.known), func(a, b *Entry) int { return cmp.Compare(a.place, b.place) })
	l.stale = false
}

// Compare orders entries by time, then by namespace and name.
func Compare(a, b *Entry) int {
	return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// results are those of the protocol.
var results = map[v1alpha1.AuditResult]pb.AuditResult{
	v1alpha1.AuditDone:    pb.AuditResult_AUDIT_RESULT_DONE,
	v1alpha1.AuditDenied:  pb.AuditResult_AUDIT_RESULT_DENIED,
	v1alpha1.AuditRefused: pb.AuditResult_AUDIT_RESULT_REFUSED,
	v1alpha1.AuditFailed:  pb.AuditResult_AUDIT_RESULT_FAILED,
}

// Render is the message of an entry.
func Render(object *v1alpha1.AuditEntry) *pb.AuditEntry {
	spec := &object.Spec
	reference := func(name string) *pb.Reference {
		if name == "" {
			return nil
		}
		return &pb.Reference{Namespace: object.Namespace, Name: name}
	}
	message := &pb.AuditEntry{
		Id: object.Namespace + "/" + object.Name, Time: timestamppb.New(spec.Time.Time), User: spec.User, Groups: spec.Groups, Action: spec.Action,
		Cluster: reference(spec.ClusterName), Operation: reference(spec.OperationName), Machine: reference(spec.MachineName),
		Detail: spec.Detail, Source: spec.Source, Client: spec.Client, Result: results[spec.Result], Message: spec.Message,
		SelfReported: spec.Reporter == v1alpha1.AuditByClient,
	}
	for _, override := range spec.Overrides {
		message.Overrides = append(message.Overrides, &pb.GateOverride{Gate: override.Gate, Reason: override.Reason})
	}
	return message
}
