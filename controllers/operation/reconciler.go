// SPDX-License-Identifier: Apache-2.0

// Package operation is the engine: it reconciles TalosOperations.
//
// A reconcile makes no call to a target. It reads what the Observer saw and what Tasks did, decides, writes the decision to status
// by a conditional update, and only then starts the task that the decision announces. All that matters is in status, so any
// process can go on where another one stopped.
package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/controllers/observe"
	"ichor.maesh.dev/hub/controllers/operation/gate"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/providers/capi"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/target"
)

// +kubebuilder:rbac:groups=ichor.maesh.dev,resources=talosoperations,verbs=get;list;watch;patch;delete;record
// +kubebuilder:rbac:groups=ichor.maesh.dev,resources=talosoperations/status,verbs=update
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=events,verbs=create

// errSettling is why a call was told to end.
var errSettling = errors.New("the operation settles")

// Viewer looks at a whole target, for gates.
type Viewer interface {
	View(ctx context.Context, t target.Target, machines []*v1alpha1.TalosMachine) gate.View
}

// Options are what a Reconciler needs.
type Options struct {
	Client client.Client
	// APIReader reads uncached.
	APIReader client.Reader
	Locks     *lock.Locks
	Executors map[v1alpha1.OperationKind]kind.Executor
	Viewer    Viewer
	// Kube writes the record on targets.
	Kube     kube.Provider
	Clock    clock.Clock
	Recorder events.EventRecorder
	// Deadlines replace those that executors declare.
	Deadlines map[v1alpha1.OperationStep]time.Duration
	// Fenced is told when another process has taken this one's place.
	Fenced func(error)
	// Looks say how what a running operation waits for is looked at.
	Looks observe.Options
	// Installation is the hub's own IchorInstallation, for operations that upgrade the hub; its zero value means that there is none.
	Installation client.ObjectKey
	// Watched says of which clusters operations are this hub's; nil means all.
	Watched *capi.Filter
}

// Reconciler drives TalosOperations.
type Reconciler struct {
	Options

	tasks    *Tasks
	observer *observe.Observer
	wakes    chan event.GenericEvent

	mu     sync.Mutex
	memory map[types.NamespacedName]*memory
}

// memory is what a process remembers of an operation. Losing it costs a look, never a decision.
type memory struct {
	// written is the operation as this process last wrote it; the cache may be behind.
	written *v1alpha1.TalosOperation

	// entered says that the lock carries this process's epoch.
	entered bool

	// trusted says that the record on the target was compared with status since then.
	trusted bool

	// shielded is for which stage the target was kept from being moved.
	shielded string
}

// Looks is how what a running operation waits for is looked at, unless a test is in a hurry.
var Looks = observe.Options{Interval: 250 * time.Millisecond, Timeout: 5 * time.Second, AtOnce: 256}

// New returns a Reconciler whose tasks and looks end with ctx.
func New(ctx context.Context, options Options) *Reconciler {
	r := &Reconciler{Options: options, wakes: make(chan event.GenericEvent, 1024), memory: map[types.NamespacedName]*memory{}}
	wake := func(key types.NamespacedName) {
		op := &v1alpha1.TalosOperation{}
		op.Namespace, op.Name = key.Namespace, key.Name
		select {
		case r.wakes <- event.GenericEvent{Object: op}:
		case <-ctx.Done():
		}
	}
	r.observer = observe.New(ctx, options.Clock, options.Looks, wake)
	r.tasks = NewTasks(ctx, options.Clock, r.observer.Invalidate, wake)
	return r
}

// clusterNameField indexes operations and machines by the cluster that they name.
const clusterNameField = "spec.clusterName"

// SetupWithManager registers the reconciler and what wakes it.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.TalosOperation{}, clusterNameField, func(o client.Object) []string {
		return []string{o.(*v1alpha1.TalosOperation).Spec.ClusterName} //nolint:forcetypeassert // Nothing else is indexed here.
	})
	if err != nil {
		return fmt.Errorf("indexing operations by cluster: %w", err)
	}
	builder := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.TalosOperation{}).
		Watches(&coordinationv1.Lease{}, handler.EnqueueRequestsFromMapFunc(r.operationsOfLease)).
		Watches(&v1alpha1.TalosOperation{}, handler.EnqueueRequestsFromMapFunc(r.siblings)).
		Watches(&v1alpha1.TalosCluster{}, handler.EnqueueRequestsFromMapFunc(r.operationsOfCluster)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.operationsOfCluster)).
		Watches(&v1alpha1.TalosMachine{}, handler.EnqueueRequestsFromMapFunc(r.operationsOfMachine)).
		WatchesRawSource(source.Channel(r.wakes, &handler.EnqueueRequestForObject{})).
		WithOptions(options)
	if r.Installation.Name != "" {
		builder = builder.Watches(&v1alpha1.IchorInstallation{}, handler.EnqueueRequestsFromMapFunc(r.operationsOfHub))
	}
	return builder.Complete(r)
}

// scope carries what one reconcile learns. Phases fill it in order.
type scope struct {
	key types.NamespacedName
	op  *v1alpha1.TalosOperation // Set by Reconcile; the working copy.

	targets.Facts // Set by load; nil Cluster means that there is none.

	executor kind.Executor                        // Set by load; nil means that the kind is not known.
	snapshot *v1alpha1.EtcdSnapshot               // Set by load; nil where the operation names none, or none that is there.
	hub      *v1alpha1.IchorInstallation          // Set by load; nil where the operation is not about the hub, or nobody has written down what that is.
	steps    map[v1alpha1.OperationStep]kind.Step // Set by load.
	traits   plan.Traits                          // Set by load.
	plan     plan.Plan                            // Set by load; its stages are in stages.
	refusals []plan.Refusal                       // Set by load: what the planner has against starting.
	kind     kind.Scope                           // Set by load.
	stages   []plan.Stage                         // Set by load.
	why      *pause                               // Set by the phase that finds why nothing may move.
	waiting  []gate.Wait                          // Added to by units that wait.
	working  []string                             // Added to by units in hand: what goes on with them.
	settling bool                                 // Set by settle, while a unit is not at a safe point yet.
	givingUp bool                                 // Set by settleForGood: failed units are given up as well.
	blocked  string                               // Set by settleForGood: why the operation cannot be deleted.
	claims   []string                             // Added to by claim: units whose task starts once status is written.
	results  map[string]result                    // Set by collect.
	wanted   map[string]bool                      // Added to by look and view.
	requeue  time.Duration                        // Set by units that wait against a deadline.
	events   []func(events.EventRecorder)         // Added to by what deserves one; recorded once status is written.
}

// Reconcile takes an operation as far as it goes without waiting.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	op, err := r.read(ctx, req.NamespacedName)
	if err != nil || op == nil {
		return ctrl.Result{}, err
	}
	if watched, err := r.Watched.Watches(ctx, types.NamespacedName{Namespace: op.Namespace, Name: op.Spec.ClusterName}); err != nil || !watched {
		return ctrl.Result{}, err
	}
	if done, err := r.identify(ctx, op); err != nil || done {
		return ctrl.Result{}, ignoreRaces(err)
	}
	s := &scope{key: req.NamespacedName, op: op.DeepCopy(), wanted: map[string]bool{}}
	gone, err := r.advance(ctx, s)
	if gone && err == nil {
		r.forget(s.key)
	}
	if err != nil || gone {
		return ctrl.Result{}, ignoreRaces(err)
	}
	if err := r.persist(ctx, op, s); err != nil {
		if apierrors.IsConflict(err) {
			r.doubt(s.key)
		}
		return ctrl.Result{}, ignoreRaces(err)
	}
	r.observer.Keep(s.key, s.wanted)
	return ctrl.Result{RequeueAfter: s.requeue}, nil
}

// ignoreRaces drops what an event on its way here settles: somebody else wrote the operation first, or it is gone.
func ignoreRaces(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// read returns the newest version of an operation that this process knows; nil means that it is gone.
func (r *Reconciler) read(ctx context.Context, key types.NamespacedName) (*v1alpha1.TalosOperation, error) {
	op := &v1alpha1.TalosOperation{}
	if err := r.Client.Get(ctx, key, op); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(key)
		}
		return nil, client.IgnoreNotFound(err)
	}
	written := r.remember(key).written
	if written != nil && written.UID != op.UID {
		r.forget(key) // Another one of the same name begins with nothing.
	}
	if written != nil && written.UID == op.UID {
		if order, err := resourceversion.CompareResourceVersion(op.ResourceVersion, written.ResourceVersion); err == nil && order < 0 {
			return written.DeepCopy(), nil
		}
	}
	return op, nil
}

func (r *Reconciler) remember(key types.NamespacedName) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, ok := r.memory[key]
	if !ok {
		m = &memory{}
		r.memory[key] = m
	}
	return m
}

// doubt makes a process look again at an operation that somebody else has written: even the API server may have been put back.
func (r *Reconciler) doubt(key types.NamespacedName) {
	memory := r.remember(key)
	memory.written, memory.trusted = nil, false
}

func (r *Reconciler) forget(key types.NamespacedName) {
	forgetPhase(key)
	r.tasks.forget(key)
	r.observer.Keep(key, nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memory, key)
}

// identify gives a new operation its finalizer and its ID before anything else is done about it.
func (r *Reconciler) identify(ctx context.Context, op *v1alpha1.TalosOperation) (done bool, err error) {
	id := cmp.Or(lock.OperationID(op), uuid.NewString())
	named := op.Annotations[v1alpha1.OperationIDAnnotation] == id
	if !op.DeletionTimestamp.IsZero() || (named && controllerutil.ContainsFinalizer(op, v1alpha1.TalosOperationFinalizer)) {
		return false, nil
	}
	err = r.patchMetadata(ctx, op, func(op *v1alpha1.TalosOperation) {
		controllerutil.AddFinalizer(op, v1alpha1.TalosOperationFinalizer)
		annotate(op, v1alpha1.OperationIDAnnotation, id)
	})
	return true, err
}

func annotate(op *v1alpha1.TalosOperation, key, value string) {
	if op.Annotations == nil {
		op.Annotations = map[string]string{}
	}
	op.Annotations[key] = value
}

// patchMetadata changes labels, annotations and finalizers of an operation, if it is still as it was read. It changes those of op
// as well, and leaves the status of op alone: that may hold what is not written yet.
func (r *Reconciler) patchMetadata(ctx context.Context, op *v1alpha1.TalosOperation, change func(*v1alpha1.TalosOperation)) error {
	patched := op.DeepCopy()
	change(patched)
	patch := client.MergeFromWithOptions(op.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, patched, patch); err != nil {
		return fmt.Errorf("patching metadata of TalosOperation %s: %w", client.ObjectKeyFromObject(op), err)
	}
	r.remember(client.ObjectKeyFromObject(op)).written = patched.DeepCopy()
	op.ObjectMeta = patched.ObjectMeta
	return nil
}

// persist writes status if it changed, and only then starts what status announces.
func (r *Reconciler) persist(ctx context.Context, read *v1alpha1.TalosOperation, s *scope) error {
	summarize(s)
	if err := r.guardMachines(ctx, s); err != nil {
		return fmt.Errorf("guarding machines of TalosOperation %s: %v", s.key, err) //nolint:errorlint // A race for a Machine is tried again.
	}
	if !apiequality.Semantic.DeepEqual(read.Status, s.op.Status) {
		written := s.op.DeepCopy() // Looks and calls under way have parts of the other one, and the answer is read into this one.
		if err := r.Client.Status().Update(ctx, written); err != nil {
			return fmt.Errorf("writing status of TalosOperation %s: %w", s.key, err)
		}
		s.op = written
		r.remember(s.key).written = s.op.DeepCopy()
		measure(read, s.op)
		s.tell(read)
	}
	for unit := range s.results {
		r.tasks.drop(observe.Key{Object: s.key, Part: unit})
	}
	for _, unit := range s.claims {
		r.start(s, unit)
	}
	for _, record := range s.events {
		record(r.Recorder)
	}
	return nil
}
