// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
)

const (
	workers = 5
	// gcSyncPeriod is how soon the garbage collector knows a new CRD. The controller manager's 30 seconds would
	// leave a fresh installation without garbage collection for just as long.
	gcSyncPeriod = 5 * time.Second
	// The loops delete object by object; a namespace with many would take minutes at a client's default rate.
	loopQPS, loopBurst = 200, 400
)

// controllers runs those loops of the Kubernetes controller manager that clients rely on without knowing it.
type controllers struct {
	config    *rest.Config
	client    kubernetes.Interface
	metadata  metadata.Interface
	informers informers.SharedInformerFactory // The server's own, so that nothing is cached twice.
}

// addControllers starts the loops when the server is up.
func addControllers(server *genericserver.GenericAPIServer, shared informers.SharedInformerFactory) error {
	return server.AddPostStartHook("start-controllers", func(hook genericserver.PostStartHookContext) error {
		c, err := newControllers(hook.LoopbackClientConfig, shared)
		if err != nil {
			return err
		}
		return c.start(hook)
	})
}

func newControllers(loopback *rest.Config, shared informers.SharedInformerFactory) (*controllers, error) {
	config := rest.CopyConfig(loopback)
	config.QPS, config.Burst = loopQPS, loopBurst
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating client of the controllers: %w", err)
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating metadata client of the controllers: %w", err)
	}
	return &controllers{config: config, client: client, metadata: meta, informers: shared}, nil
}

func (c *controllers) start(ctx context.Context) error {
	c.startNamespaces(ctx)
	c.startClusterRoleAggregation(ctx)
	if err := c.startServiceAccounts(ctx); err != nil {
		return err
	}
	if err := c.startGarbageCollector(ctx); err != nil {
		return err
	}
	// Informers that only the loops use were unknown when the server started the others.
	c.informers.Start(ctx.Done())
	return nil
}

// startNamespaces empties namespaces that are being deleted.
func (c *controllers) startNamespaces(ctx context.Context) {
	const resync = 5 * time.Minute
	loop := namespace.NewNamespaceController(ctx, c.client, c.metadata,
		c.client.Discovery().ServerPreferredNamespacedResources,
		c.informers.Core().V1().Namespaces(), resync, corev1.FinalizerKubernetes)
	go loop.Run(ctx, workers)
}

// startClusterRoleAggregation fills ClusterRoles that are put together from others.
func (c *controllers) startClusterRoleAggregation(ctx context.Context) {
	loop := clusterroleaggregation.NewClusterRoleAggregation(c.informers.Rbac().V1().ClusterRoles(), c.client.RbacV1())
	go loop.Run(ctx, workers)
}

// startServiceAccounts gives every namespace its default service account.
func (c *controllers) startServiceAccounts(ctx context.Context) error {
	core := c.informers.Core().V1()
	loop, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx),
		core.ServiceAccounts(), core.Namespaces(), c.client, serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return fmt.Errorf("creating service account controller: %w", err)
	}
	go loop.Run(ctx, 1)
	return nil
}

// startGarbageCollector deletes objects whose owners are gone.
func (c *controllers) startGarbageCollector(ctx context.Context) error {
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.client.Discovery()))
	objects := informerfactory.NewInformerFactory(c.informers, metadatainformer.NewSharedInformerFactory(c.metadata, 0))
	started := make(chan struct{})
	close(started) // The server's informers run already.
	gc, err := garbagecollector.NewGarbageCollector(ctx, c.client, c.metadata, mapper,
		garbagecollector.DefaultIgnoredResources(), objects, started)
	if err != nil {
		return fmt.Errorf("creating garbage collector: %w", err)
	}
	// The mapper must not share its discovery client with the loop that resets it.
	resources, err := discovery.NewDiscoveryClientForConfig(c.config)
	if err != nil {
		return fmt.Errorf("creating discovery client of the garbage collector: %w", err)
	}
	go gc.Run(ctx, workers, gcSyncPeriod)
	go gc.Sync(ctx, resources, gcSyncPeriod)
	return nil
}
