// SPDX-License-Identifier: Apache-2.0

// Package audit keeps who did what with the hub, and tells it.
//
// Entries are objects of the management API beside what they are about, so that every replica gives the same answer, and the same after a
// restart. They are bounded by age and count.
package audit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/lru"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/auth"
)

const (
	// writeTimeout bounds how long an answer waits for its entry.
	writeTimeout = 3 * time.Second

	// What a user may add of what changed nothing: whoever has no right at all could push the entries of others out of the bounds.
	idleEvery, idleBurst = 2 * time.Second, 30

	// What all users together may add of it to a namespace.
	idleEveryAll, idleBurstAll = time.Second, 200

	// limited is for how many users, and how many namespaces, that is remembered.
	limited = 4096
)

// The bounds of the API's fields.
const (
	longest       = 1024
	longestClient = 256
	longestName   = 253
	mostGroups    = 64
	mostOverrides = 16
	longestReason = 256
	longestGate   = 64
)

// Recorder writes down what was done: as a line of the log, and as an AuditEntry in the namespace of what it was done to.
type Recorder struct {
	// Writer writes entries: the hub's own client, or the user's where there is no hub.
	Writer client.Writer

	// Reader finds the cluster of an operation or a machine; nil leaves it out.
	Reader client.Reader

	// Reporter is who writes.
	Reporter v1alpha1.AuditReporter

	// Log gets a line for everything.
	Log logr.Logger

	// Now tells the time.
	Now func() time.Time

	mu                sync.Mutex
	users, namespaces *lru.Cache // A *rate.Limiter by name.
}

// NewRecorder returns a recorder of a hub that writes with a client of its own.
func NewRecorder(hub client.Client, log logr.Logger) *Recorder {
	return newRecorder(hub, v1alpha1.AuditByHub, log)
}

// NewClientRecorder returns a recorder of a process that does for its user what a hub would, with the user's client.
func NewClientRecorder(user client.Client, log logr.Logger) *Recorder {
	return newRecorder(user, v1alpha1.AuditByClient, log)
}

func newRecorder(c client.Client, reporter v1alpha1.AuditReporter, log logr.Logger) *Recorder {
	return &Recorder{Writer: c, Reader: c, Reporter: reporter, Log: log, Now: time.Now, users: lru.New(limited), namespaces: lru.New(limited)}
}

// record writes down one call, whatever became of it.
func (r *Recorder) record(ctx context.Context, caller auth.Caller, action string, about subject, came outcome) {
	entry := r.entry(caller, action, about, came)
	r.Log.Info("audit", "user", entry.Spec.User, "action", action, "namespace", entry.Namespace,
		"cluster", entry.Spec.ClusterName, "operation", entry.Spec.OperationName, "machine", entry.Spec.MachineName,
		"detail", entry.Spec.Detail, "result", came.result, "effect", came.effect, "message", entry.Spec.Message, "overrides", gates(entry.Spec.Overrides),
		"source", entry.Spec.Source, "client", entry.Spec.Client)
	entries.WithLabelValues(string(came.result)).Inc()
	switch {
	case len(validation.IsDNS1123Label(about.namespace)) > 0: // There is no such namespace.
	case cameToNothing(&entry.Spec) && !r.mayAdd(caller.Name, about.namespace):
		lost.WithLabelValues(lostToLimit).Inc()
	default:
		r.write(ctx, entry)
	}
}

// write never fails: what was done is done, and the log has it.
func (r *Recorder) write(ctx context.Context, entry *v1alpha1.AuditEntry) {
	// Whoever hangs up after an order has given it all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	err := r.Writer.Create(ctx, entry)
	if err == nil || noNamespace(err) {
		return
	}
	lost.WithLabelValues(lostToError).Inc()
	r.Log.Error(err, "An audit entry could not be written, this log alone has it", "user", entry.Spec.User, "action", entry.Spec.Action,
		"namespace", entry.Namespace, "cluster", entry.Spec.ClusterName)
}

// noNamespace says whether there is no namespace to write to, or none for long: the attempt named something that does not exist.
func noNamespace(err error) bool {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return true
	}
	status, ok := err.(apierrors.APIStatus)
	return ok && apierrors.IsNotFound(err) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
}

// mayAdd says whether a user may add an entry of what came to nothing to a namespace. The user is asked first: one alone does not use up what
// all have.
func (r *Recorder) mayAdd(user, namespace string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return limiter(r.users, user, idleEvery, idleBurst).AllowN(r.Now(), 1) &&
		limiter(r.namespaces, namespace, idleEveryAll, idleBurstAll).AllowN(r.Now(), 1)
}

// limiter is the limiter of a name, which begins with all that it has.
func limiter(of *lru.Cache, name string, every time.Duration, burst int) *rate.Limiter {
	if known, ok := of.Get(name); ok {
		return known.(*rate.Limiter)
	}
	fresh := rate.NewLimiter(rate.Every(every), burst)
	of.Add(name, fresh)
	return fresh
}

// cameToNothing says whether nothing is known to have been changed: whoever has no right at all can have such entries written, by a deadline that
// is over at once, too.
func cameToNothing(spec *v1alpha1.AuditEntrySpec) bool {
	if spec.Effect == "" {
		return spec.Result != v1alpha1.AuditDone
	}
	return spec.Effect == v1alpha1.AuditUnchanged
}

func (r *Recorder) entry(caller auth.Caller, action string, about subject, came outcome) *v1alpha1.AuditEntry {
	now := r.Now()
	entry := &v1alpha1.AuditEntry{
		ObjectMeta: metav1.ObjectMeta{Namespace: about.namespace, Name: nameAt(now)},
		Spec: v1alpha1.AuditEntrySpec{
			Time: metav1.NewMicroTime(now), User: clip(caller.Name, longest), Groups: clipAll(caller.Groups), Reporter: r.Reporter, Action: action,
			ClusterName: clip(about.cluster, longestName), OperationName: clip(about.operation, longestName), MachineName: clip(about.machine, longestName),
			Detail: clip(about.detail, longest), Source: clip(caller.Source, longestClient), Client: clip(caller.Client, longestClient),
			Result: came.result, Effect: came.effect, Message: clip(came.message, longest), Overrides: clipOverrides(about.overrides),
		},
	}
	if about.cluster != "" && len(validation.IsValidLabelValue(about.cluster)) == 0 {
		entry.Labels = map[string]string{clusterv1.ClusterNameLabel: about.cluster}
	}
	return entry
}

// nameAt is the name of an entry: names of one namespace sort by time.
func nameAt(t time.Time) string {
	t = t.UTC()
	return fmt.Sprintf("%s-%09dz-%s", t.Format("20060102t150405"), t.Nanosecond(), rand.String(5))
}

func gates(overrides []v1alpha1.GateOverride) []string {
	var names []string
	for _, override := range overrides {
		names = append(names, override.Gate)
	}
	return names
}

// clip shortens what users say to what the API takes.
func clip(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

func clipAll(groups []string) []string {
	groups = slices.DeleteFunc(slices.Clone(groups), func(group string) bool { return group == "" })
	groups = groups[:min(len(groups), mostGroups)]
	for i, group := range groups {
		groups[i] = clip(group, longest)
	}
	return groups
}

func clipOverrides(overrides []v1alpha1.GateOverride) []v1alpha1.GateOverride {
	var clipped []v1alpha1.GateOverride
	for _, override := range overrides[:min(len(overrides), mostOverrides)] {
		if override.Gate != "" { // What has no name bypasses nothing.
			clipped = append(clipped, v1alpha1.GateOverride{Gate: clip(override.Gate, longestGate), Reason: clip(orNone(override.Reason), longestReason)})
		}
	}
	return clipped
}

func orNone(reason string) string {
	if reason == "" {
		return "none was given"
	}
	return reason
}
