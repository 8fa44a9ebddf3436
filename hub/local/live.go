// SPDX-License-Identifier: Apache-2.0

package local

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
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/fleet"
	"ichor.maesh.dev/hub/hub/scheme"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

const (
	// pulse is how often the management API is asked whether it is there while somebody watches: informers wait for it without a word.
	pulse = 5 * time.Second

	// pulseTimeout is how long it may take to answer.
	pulseTimeout = 5 * time.Second
)

// live is a fleet that goes on changing.
type live struct {
	fleet    *fleet.Fleet
	failures []*pb.Failure
	end      context.CancelFunc
	ended    chan struct{}
}

// Live implements service.Live: watches of the same namespaces share a fleet as long as the connection and the management API last.
func (b *backend) Live(ctx context.Context, namespaces ...string) (*fleet.Fleet, []*pb.Failure, error) {
	l, err := b.liveOf(ctx, b.of(namespaces))
	if err != nil {
		return nil, nil, err
	}
	if err := l.fleet.WaitForSync(ctx); err != nil {
		return nil, nil, err
	}
	return l.fleet, l.failures, nil
}

// liveOf is the fleet of some namespaces, which it starts where there is none.
func (b *backend) liveOf(ctx context.Context, namespaces []string) (*live, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("the connection is closed"))
	}
	key := strings.Join(slices.Sorted(slices.Values(namespaces)), ",")
	if l, ok := b.live[key]; ok && !l.over() {
		return l, nil
	}
	l, err := b.start(ctx, namespaces)
	if err != nil {
		return nil, err
	}
	b.live[key] = l
	return l, nil
}

func (l *live) over() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// start begins to feed a fleet.
func (b *backend) start(ctx context.Context, namespaces []string) (*live, error) {
	watched, failures, err := b.watchable(ctx, namespaces)
	if err != nil {
		return nil, err
	}
	informers, err := cache.New(b.options.Config, cache.Options{
		HTTPClient: b.http, Scheme: scheme.New(), Mapper: b.client.RESTMapper(), ByObject: watched, DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, fmt.Errorf("preparing to watch the management API: %w", err)
	}
	objects := slices.Collect(maps.Keys(watched))
	running, end := context.WithCancel(context.Background())
	l := &live{fleet: fleet.New(), failures: failures, end: end, ended: make(chan struct{})}
	go func() { _ = informers.Start(running) }() // It ends with its context.
	go func() { _ = l.fleet.Start(running, informers, objects...) }()
	go func() {
		defer close(l.ended)
		defer end()
		l.fleet.Close(b.lost(running))
	}()
	return l, nil
}

// lost returns when the management API does not answer any more, and says why.
func (b *backend) lost(ctx context.Context) error {
	ticker := time.NewTicker(pulse)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return errors.New("the connection was closed")
		case <-ticker.C:
		}
		if err := b.ping(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("the management API at %s does not answer: %w", b.options.Config.Host, err)
		}
	}
}

func (b *backend) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pulseTimeout)
	defer cancel()
	return b.discovery.RESTClient().Get().AbsPath("/version").Do(ctx).Error()
}

// watchable are the objects of a fleet that may be watched, and where. An informer of another would wait for its right for ever.
func (b *backend) watchable(ctx context.Context, namespaces []string) (map[client.Object]cache.ByObject, []*pb.Failure, error) {
	if len(namespaces) == 0 {
		namespaces = []string{cache.AllNamespaces}
	}
	watched := map[client.Object]cache.ByObject{}
	var failures []*pb.Failure
	for _, object := range fleet.All() {
		where := map[string]cache.Config{}
		for _, namespace := range namespaces {
			err := b.mayWatch(ctx, object, namespace)
			switch {
			case meta.IsNoMatchError(err), connect.CodeOf(err) == connect.CodePermissionDenied && isLease(object):
				// Nobody has installed it, or others say as much: the status of a cluster names the holder of its lock, too.
			case connect.CodeOf(err) == connect.CodePermissionDenied:
				failures = append(failures, failure(namespace, err))
			case err != nil:
				return nil, nil, err
			default:
				where[namespace] = cache.Config{}
			}
		}
		if len(where) > 0 {
			watched[object] = cache.ByObject{Namespaces: where, Label: ofClusters(object)}
		}
	}
	if len(watched) == 0 && len(failures) > 0 {
		return nil, nil, connect.NewError(connect.CodePermissionDenied, errors.New(failures[0].GetMessage()))
	}
	return watched, failures, nil
}

func isLease(object client.Object) bool {
	_, lease := object.(*coordinationv1.Lease)
	return lease
}

// ofClusters leaves out Leases of no cluster, of which there may be many.
func ofClusters(object client.Object) labels.Selector {
	if !isLease(object) {
		return nil
	}
	selector, err := labels.Parse(clusterv1.ClusterNameLabel)
	utilruntime.Must(err) // The label is a constant.
	return selector
}

// mayWatch returns nil if the caller may list and watch an object.
func (b *backend) mayWatch(ctx context.Context, object client.Object, namespace string) error {
	kind, err := b.client.GroupVersionKindFor(object)
	if err != nil {
		return fmt.Errorf("finding the kind of %T: %w", object, err)
	}
	mapping, err := b.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return refused(fmt.Errorf("asking the management API at %s for %s: %w", b.options.Config.Host, kind.Kind, err))
	}
	caller, _ := auth.From(ctx)
	for _, verb := range []string{"list", "watch"} {
		what := authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: mapping.Resource.Group, Resource: mapping.Resource.Resource}
		if err := b.rights.of(caller).May(ctx, what); err != nil {
			return err
		}
	}
	return nil
}

// close ends everything that goes on.
func (b *backend) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, l := range b.live {
		l.end()
		<-l.ended
	}
}
