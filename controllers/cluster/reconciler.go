// SPDX-License-Identifier: Apache-2.0

// Package cluster keeps the status of TalosClusters, and finds their machines.
//
// It changes nothing on a target but the record of who manages it. A probe looks at each target outside of reconciles; a reconcile
// writes down what differs.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/controllers/machineconfig/bases"
	"ichor.maesh.dev/hub/controllers/observe"
	"ichor.maesh.dev/hub/controllers/operation/gate"
	"ichor.maesh.dev/hub/controllers/snapshot"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/providers/capi"
	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// +kubebuilder:rbac:groups=ichor.maesh.dev,resources=talosclusters,verbs=get;list;watch;patch;record
// +kubebuilder:rbac:groups=ichor.maesh.dev,resources=talosclusters/status,verbs=patch
// +kubebuilder:rbac:groups=ichor.maesh.dev,resources=talosmachines,verbs=get;list;watch;create;patch;record
// +kubebuilder:rbac:groups=ichor.maesh.dev,resources=talosmachines/status,verbs=patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create

// Probes says how often targets are probed: a target that does not change once a minute, so that a thousand of them are no load, and one
// that changes, or that an operation works on, every ten seconds.
var Probes = observe.Options{Interval: 10 * time.Second, Longest: time.Minute, Jitter: 0.1, Timeout: 15 * time.Second, AtOnce: 64}

// Forgetter lets go of what it keeps about a target.
type Forgetter interface {
	Forget(key types.NamespacedName)
}

// Options are what a Reconciler needs.
type Options struct {
	Client client.Client
	// APIReader reads uncached.
	APIReader   client.Reader
	Credentials *credentials.Store
	Talos       talos.Provider
	Kube        kube.Provider
	Clock       clock.Clock

	// Configs compares machine configs; nil compares none.
	Configs *bases.Comparer

	// Forgetters are told when a target is not managed any more.
	Forgetters []Forgetter

	// Probes says how often targets are probed.
	Probes observe.Options

	// Watched says which clusters are this hub's; nil means all.
	Watched *capi.Filter
}

// Reconciler keeps TalosClusters.
type Reconciler struct {
	Options

	prober   prober
	observer *observe.Observer
	wakes    chan event.GenericEvent
	begin    func() error // Begins to watch Machines, once.
}

// New returns a Reconciler whose probes end with ctx.
func New(ctx context.Context, options Options) *Reconciler {
	r := &Reconciler{
		Options: options,
		prober: prober{
			credentials: options.Credentials, talos: options.Talos, kube: options.Kube, clock: options.Clock, lookup: net.DefaultResolver.LookupHost,
			configs: options.Configs,
		},
		wakes: make(chan event.GenericEvent, 1024),
	}
	r.observer = observe.New(ctx, options.Clock, options.Probes, func(key types.NamespacedName) {
		cluster := &v1alpha1.TalosCluster{}
		cluster.Namespace, cluster.Name = key.Namespace, key.Name
		select {
		case r.wakes <- event.GenericEvent{Object: cluster}:
		case <-ctx.Done():
		}
	})
	return r
}

// credentialSecretsField indexes clusters by the Secrets that they take credentials from.
const credentialSecretsField = "credentialSecrets"

func credentialSecrets(object client.Object) []string {
	cluster, ok := object.(*v1alpha1.TalosCluster)
	if !ok {
		return nil
	}
	return []string{cluster.KubeconfigSecretName(), cluster.TalosconfigSecretName()}
}

// SetupWithManager registers the reconciler and what wakes it.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.TalosCluster{}, credentialSecretsField, credentialSecrets); err != nil {
		return fmt.Errorf("indexing clusters by the Secrets of their credentials: %w", err)
	}
	ofCluster := handler.EnqueueRequestsFromMapFunc(clusterOf)
	built, err := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.TalosCluster{}).
		Watches(&v1alpha1.TalosMachine{}, ofCluster, builder.WithPredicates(predicate.Funcs{DeleteFunc: r.lookAgainWithout})).
		Watches(&v1alpha1.EtcdSnapshot{}, handler.EnqueueRequestsFromMapFunc(snapshot.ClusterOf)).
		Watches(&coordinationv1.Lease{}, handler.EnqueueRequestsFromMapFunc(r.lookAgain)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.lookAgainWithSecret)).
		Watches(&clusterv1.Cluster{}, &handler.EnqueueRequestForObject{}).
		WatchesRawSource(source.Channel(r.wakes, &handler.EnqueueRequestForObject{})).
		WithOptions(options).
		Build(r)
	if err != nil {
		return err
	}
	r.begin = capi.NewWatch(built, mgr.GetCache()).Begin
	return nil
}

// clusterOf is the cluster that an object is labelled with.
func clusterOf(_ context.Context, object client.Object) []reconcile.Request {
	name := object.GetLabels()[clusterv1.ClusterNameLabel]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: name}}}
}

// lookAgain is clusterOf for what makes the last probe old: other credentials, or work that began or ended.
func (r *Reconciler) lookAgain(ctx context.Context, object client.Object) []reconcile.Request {
	requests := clusterOf(ctx, object)
	for _, request := range requests {
		r.observer.Invalidate(request.NamespacedName)
	}
	return requests
}

// lookAgainWithout makes the last probe old once a machine is forgotten: it may have answered then, and would be found again as it was.
func (r *Reconciler) lookAgainWithout(gone event.DeleteEvent) bool {
	r.lookAgain(context.Background(), gone.Object)
	return true
}

// lookAgainWithSecret is lookAgain for every cluster that takes a credential from a Secret, whichever cluster its label names.
func (r *Reconciler) lookAgainWithSecret(ctx context.Context, secret client.Object) []reconcile.Request {
	requests := r.lookAgain(ctx, secret)
	list := &v1alpha1.TalosClusterList{}
	err := r.Client.List(ctx, list, client.InNamespace(secret.GetNamespace()), client.MatchingFields{credentialSecretsField: secret.GetName()})
	if err != nil {
		return requests // The next probe sees it, up to a minute later.
	}
	for i := range list.Items {
		key := client.ObjectKeyFromObject(&list.Items[i])
		if !slices.Contains(requests, reconcile.Request{NamespacedName: key}) {
			r.observer.Invalidate(key)
			requests = append(requests, reconcile.Request{NamespacedName: key})
		}
	}
	return requests
}

// Reconcile writes down what the last probe of a target tells.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if watched, err := r.Watched.Watches(ctx, req.NamespacedName); err != nil || !watched {
		r.forget(req.NamespacedName) // It may have been this hub's.
		return ctrl.Result{}, err
	}
	facts, err := targets.Load(ctx, r.Client, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if facts.Cluster == nil || !facts.Cluster.DeletionTimestamp.IsZero() {
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	if err := errors.Join(r.belong(ctx, &facts), r.loadMembers(ctx, &facts)); err != nil {
		return ctrl.Result{}, err
	}
	holder, err := r.lockHolder(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	snapshots, err := r.snapshotsOf(ctx, facts)
	if err != nil {
		return ctrl.Result{}, err
	}
	before := facts.Cluster.DeepCopy()
	seen, fresh := r.look(facts, holder != "")
	var trouble error // It must not keep what was seen from being written down.
	if fresh {
		trouble = ignoreRaces(errors.Join(r.identify(ctx, &facts, seen), r.discoverAndRecord(ctx, &facts, seen), r.keepBases(ctx, facts, seen)))
		r.followConfigs(facts, seen)
	}
	summarize(facts, seen, fresh, holder)
	result := ctrl.Result{RequeueAfter: setEtcdBackedUp(facts.Cluster, snapshots, r.Clock.Now())}
	measure(facts.Cluster)
	if apiequality.Semantic.DeepEqual(before.Status, facts.Cluster.Status) {
		return result, trouble
	}
	if err := r.Client.Status().Patch(ctx, facts.Cluster, client.MergeFrom(before)); err != nil {
		return ctrl.Result{}, errors.Join(trouble, ignoreRaces(fmt.Errorf("writing status of TalosCluster %s: %w", req.NamespacedName, err)))
	}
	return result, trouble
}

// ignoreRaces drops what the next event settles: the cache had not seen our own last write yet, or that the object is gone.
func ignoreRaces(err error) error {
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.observer.Keep(key, nil)
	unmeasure(key)
	for _, forgetter := range r.Forgetters {
		forgetter.Forget(key)
	}
}

// look returns the last probe of a target, and keeps probing. Work on a target is a reason to look closely.
func (r *Reconciler) look(facts targets.Facts, work bool) (probe, bool) {
	key := observe.Key{Object: client.ObjectKeyFromObject(facts.Cluster)}
	asked := facts.DeepCopy() // What is written while it is under way is not what it was asked for.
	seen, fresh := r.observer.Want(key, func(ctx context.Context) any {
		return r.prober.probe(ctx, asked)
	})
	r.observer.Closely(key, work)
	observed, _ := seen.(probe)
	return observed, fresh
}

func (r *Reconciler) discoverAndRecord(ctx context.Context, facts *targets.Facts, seen probe) error {
	switch {
	case different(seen):
		return nil // Machines of another cluster are none of ours.
	case standsStill(facts):
		return r.record(ctx, facts, seen)
	}
	if err := r.discover(ctx, facts, seen); err != nil {
		return err
	}
	if err := r.record(ctx, facts, seen); err != nil {
		return err
	}
	return r.endInitialApproval(ctx, facts, seen)
}

// endInitialApproval records that one discovery has matched everything. Machines that appear later wait for a person.
func (r *Reconciler) endInitialApproval(ctx context.Context, facts *targets.Facts, seen probe) error {
	if facts.Cluster.Annotations[v1alpha1.MembersApprovedAtAnnotation] != "" || !complete(*facts, seen) {
		return nil
	}
	patched := facts.Cluster.DeepCopy()
	if patched.Annotations == nil {
		patched.Annotations = map[string]string{}
	}
	patched.Annotations[v1alpha1.MembersApprovedAtAnnotation] = r.Clock.Now().UTC().Format(time.RFC3339)
	if err := r.Client.Patch(ctx, patched, client.MergeFrom(facts.Cluster)); err != nil {
		return fmt.Errorf("recording the end of initial approval on TalosCluster %s: %w", client.ObjectKeyFromObject(patched), err)
	}
	facts.Cluster.ObjectMeta = patched.ObjectMeta
	return nil
}

// complete says whether a probe saw a whole cluster, and every part of it has a machine.
func complete(facts targets.Facts, seen probe) bool {
	return observed(seen) && len(seen.nodes) > 0 && allAnswer(seen) &&
		gate.Duplicate(pointers(facts.Machines)) == "" && twins(seen) == "" && unmatched(facts, seen) == ""
}

// allAnswer says whether every machine answered, and every control plane told of etcd.
func allAnswer(seen probe) bool {
	members := false
	for _, machine := range seen.machines {
		if machine.trouble != "" || (machine.role == v1alpha1.ControlPlaneRole && machine.etcd == nil) {
			return false
		}
		members = members || machine.etcd != nil
	}
	return members
}

func (r *Reconciler) lockHolder(ctx context.Context, key types.NamespacedName) (string, error) {
	lease := &coordinationv1.Lease{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: lock.LeaseName(key.Name)}, lease)
	if err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return lock.HolderOf(lease).Identity, nil
}
