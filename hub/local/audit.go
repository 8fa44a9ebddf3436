// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/audit"
	"ichor.maesh.dev/hub/hub/scheme"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// Audit implements service.Audited: it is loaded for each call.
func (b *backend) Audit(ctx context.Context, namespaces ...string) (*audit.Log, []*pb.Failure, error) {
	log, err := audit.Load(ctx, b.client, b.of(namespaces)...)
	if err != nil {
		return nil, nil, refused(fmt.Errorf("asking the management API at %s: %w", b.options.Config.Host, err))
	}
	return log, nil, nil
}

// LiveAudit implements service.LiveAudited: it goes on until the call ends, or the management API does not answer any more.
func (b *backend) LiveAudit(ctx context.Context, namespaces ...string) (*audit.Log, []*pb.Failure, error) {
	where := map[string]cache.Config{}
	for _, namespace := range b.of(namespaces) {
		where[namespace] = cache.Config{}
	}
	if len(where) == 0 {
		where[cache.AllNamespaces] = cache.Config{}
	}
	entry := &v1alpha1.AuditEntry{}
	for namespace := range where { // An informer that may not watch would wait for its right for ever.
		if err := b.mayWatch(ctx, entry, namespace); err != nil {
			return nil, nil, err
		}
	}
	informers, err := cache.New(b.options.Config, cache.Options{
		HTTPClient: b.http, Scheme: scheme.New(), Mapper: b.client.RESTMapper(),
		ByObject: map[client.Object]cache.ByObject{entry: {Namespaces: where}}, DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("preparing to watch the management API: %w", err)
	}
	log := audit.NewLog()
	running, end := context.WithCancel(ctx)
	go func() { _ = informers.Start(running) }() // It ends with its context.
	go func() { _ = log.Start(running, informers) }()
	go func() {
		defer end()
		log.Close(b.lost(running))
	}()
	if err := log.WaitForSync(ctx); err != nil {
		end()
		return nil, nil, err
	}
	return log, nil, nil
}
