// SPDX-License-Identifier: Apache-2.0

package scale_test

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/hub/service"
	"ichor.maesh.dev/hub/test/framework"
)

// hub is a standalone hub in a process of its own, as users run it, that shows its metrics.
type hub struct {
	daemon  *framework.Daemon
	dir     string
	metrics string // Address of its metrics.
	pprof   string // Address of its Go profiles.
	plane   int    // Process ID of its API server.
	host    string // Address of its API server, as its metrics name it.

	client    client.WithWatch
	informers cache.Cache
	service   *service.Service
	discovery discovery.DiscoveryInterface
}

func startHub(ctx context.Context, dir string) (*hub, error) {
	h := &hub{dir: dir}
	var err error
	if h.metrics, err = framework.FreeAddress(ctx); err != nil {
		return nil, err
	}
	if h.pprof, err = framework.FreeAddress(ctx); err != nil {
		return nil, err
	}
	h.daemon, err = framework.StartDaemon(ctx, filepath.Join(dir, "hub.log"), "ichor-hub",
		"serve", "--standalone", "--data-dir", filepath.Join(dir, "hub"), "--listen", "127.0.0.1:0", "--metrics-bind-address", h.metrics, "--pprof-bind-address", h.pprof)
	if err != nil {
		return nil, err
	}
	if h.plane, err = framework.Child(h.daemon.PID()); err != nil {
		return h, err
	}
	if err := h.waitForMetrics(ctx); err != nil {
		return h, err
	}
	return h, h.connect(ctx)
}

// waitForMetrics waits until the controllers run: the hub is ready when its API server is.
func (h *hub) waitForMetrics(ctx context.Context) error {
	const again = 100 * time.Millisecond
	return wait.PollUntilContextCancel(ctx, again, true, func(ctx context.Context) (bool, error) {
		_, err := scrape(ctx, h.metrics)
		return err == nil, nil // Not yet.
	})
}

// connect makes the client of an administrator, which nothing slows down.
func (h *hub) connect(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", h.kubeconfig())
	if err != nil {
		return fmt.Errorf("reading the kubeconfig of the hub: %w", err)
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	server, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	h.host = server.Host
	if h.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme.New()}); err != nil {
		return fmt.Errorf("connecting to the hub's API server: %w", err)
	}
	if h.discovery, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		return fmt.Errorf("connecting to the hub's API server: %w", err)
	}
	h.service = &service.Service{Client: h.client, Now: time.Now}
	if h.informers, err = cache.New(config, cache.Options{Scheme: scheme.New()}); err != nil {
		return fmt.Errorf("preparing informers: %w", err)
	}
	go func() { _ = h.informers.Start(ctx) }()
	return nil
}

// follow hands every object of a kind to a function, as it is now and whenever it changes, until stop is called. A plain watch would not do: a busy
// API server ends those that it cannot serve fast enough.
func (h *hub) follow(ctx context.Context, kind client.Object, changed func(object any)) (stop func(), err error) {
	informer, err := h.informers.GetInformer(ctx, kind)
	if err != nil {
		return nil, fmt.Errorf("following %T: %w", kind, err)
	}
	handler, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(_, object any) { changed(object) },
	})
	if err != nil {
		return nil, fmt.Errorf("following %T: %w", kind, err)
	}
	return func() { _ = informer.RemoveEventHandler(handler) }, nil
}

func (h *hub) kubeconfig() string { return filepath.Join(h.dir, "hub", "kubeconfig") }

func (h *hub) stop() { _ = h.daemon.End(syscall.SIGTERM) }

// freeAddress is a loopback address that nobody listened on a moment ago.
// usage is what processes have used so far.
type usage struct {
	at                time.Time
	hub, plane, fleet float64 // Processor seconds.
	requests          float64 // Requests of the hub to its API server.
	metrics           metrics
}

func (h *hub) usage(ctx context.Context, f *fleet) (u usage, err error) {
	if u.metrics, err = scrape(ctx, h.metrics); err != nil {
		return u, err
	}
	u.requests = u.metrics.counted("rest_client_requests_total", "host", h.host)
	u.at = time.Now()
	if u.hub, err = framework.CPUSeconds(h.daemon.PID()); err != nil {
		return u, err
	}
	if u.plane, err = framework.CPUSeconds(h.plane); err != nil {
		return u, err
	}
	for _, pid := range f.pids() {
		seconds, err := framework.CPUSeconds(pid)
		if err != nil {
			return u, err
		}
		u.fleet += seconds
	}
	return u, nil
}

// reconciles are the reconciles of a controller since an earlier moment.
func (u usage) reconciles(before usage, controller string) []bucket {
	const name = "controller_runtime_reconcile_time_seconds"
	return since(before.metrics.histogram(name, "controller", controller), u.metrics.histogram(name, "controller", controller))
}
