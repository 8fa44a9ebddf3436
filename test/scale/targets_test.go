// SPDX-License-Identifier: Apache-2.0

package scale_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/service"
	"ichor.maesh.dev/hub/test/framework"
)

const (
	// namespace is where all clusters are.
	namespace = "default"

	// busyPart and goneEvery are which part of the clusters is rebooted at once, and which is black-holed: a fifth, and two of five.
	busyPart, goneOf5 = 5, 2

	// lists is how often the clusters are listed, and commands how often the command line does it.
	lists, commands = 200, 20
)

// sizes are what the environment can change, to try the benchmark in little time.
type sizes struct {
	clusters     int
	settle, idle time.Duration
	phases       []string
}

// phases are what is measured once all clusters are available.
var phases = map[string]func(*world, context.Context){
	"idle":       (*world).idle,
	"operations": func(w *world, ctx context.Context) { w.measureOperations(ctx, "all", w.fleet.clusters) },
	"blackhole":  (*world).blackhole,
}

func readSizes() (s sizes, err error) {
	s = sizes{clusters: 1000, settle: 75 * time.Second, idle: 75 * time.Second, phases: []string{"idle", "operations", "blackhole"}}
	if text := os.Getenv("ICHOR_SCALE_PHASES"); text != "" {
		s.phases = strings.Split(text, ",")
		for _, phase := range s.phases {
			if phases[phase] == nil {
				return s, fmt.Errorf("ICHOR_SCALE_PHASES: %q is none of idle, operations, blackhole", phase)
			}
		}
	}
	if text := os.Getenv("ICHOR_SCALE_CLUSTERS"); text != "" {
		if s.clusters, err = strconv.Atoi(text); err != nil {
			return s, fmt.Errorf("ICHOR_SCALE_CLUSTERS: %w", err)
		}
	}
	for name, duration := range map[string]*time.Duration{"ICHOR_SCALE_SETTLE": &s.settle, "ICHOR_SCALE_IDLE": &s.idle} {
		if text := os.Getenv(name); text != "" {
			if *duration, err = time.ParseDuration(text); err != nil {
				return s, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return s, nil
}

// world is one hub with its fleet.
type world struct {
	*testing.B

	g     *WithT
	sizes sizes
	fleet *fleet
	hub   *hub
}

// BenchmarkManyTargets registers a fleet in one hub and measures it: until all is available, idle, with many operations at once, and with a
// part of the fleet behind a black hole. The fleet's processes take their share of the same machine, so times are upper bounds.
func BenchmarkManyTargets(b *testing.B) {
	w := &world{B: b, g: NewWithT(b)}
	var err error
	w.sizes, err = readSizes()
	w.g.Expect(err).NotTo(HaveOccurred())
	for range b.N {
		ctx, cancel := context.WithTimeout(b.Context(), 20*time.Minute)
		w.start(ctx)
		w.register(ctx)
		for _, phase := range w.sizes.phases {
			phases[phase](w, ctx)
		}
		w.hub.stop()
		w.fleet.stop()
		cancel()
	}
}

func (w *world) start(ctx context.Context) {
	dir := w.TempDir()
	var err error
	w.fleet, err = startFleet(ctx, dir, w.sizes.clusters)
	w.Cleanup(w.fleet.stop)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.hub, err = startHub(ctx, dir)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.Cleanup(w.hub.stop)
}

// report says a figure, in the log at once and among the results at the end.
func (w *world) report(value float64, unit string) {
	w.Helper()
	w.Logf("%12.3f %s", value, unit)
	w.ReportMetric(value, unit)
}

// register imports every cluster as the command line does, and waits until all are available.
func (w *world) register(ctx context.Context) {
	available, err := w.hub.await(ctx, metav1.ConditionTrue, w.sizes.clusters)
	w.g.Expect(err).NotTo(HaveOccurred())
	before, err := w.hub.usage(ctx, w.fleet)
	w.g.Expect(err).NotTo(HaveOccurred())
	begun := time.Now()
	imported := make(chan error, 1)
	var lastImport time.Time
	go func() {
		err := w.importAll(ctx)
		lastImport = time.Now()
		imported <- err
	}()
	shown, err := available(ctx)
	w.g.Expect(err).NotTo(HaveOccurred())
	done := slices.MaxFunc(shown, time.Time.Compare)
	w.g.Expect(<-imported).To(Succeed())
	after, err := w.hub.usage(ctx, w.fleet)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.report(lastImport.Sub(begun).Seconds(), "s/import")
	w.report(done.Sub(begun).Seconds(), "s/available")
	w.report(done.Sub(lastImport).Seconds(), "s/available-after-the-last-import")
	w.report((after.requests-before.requests)/float64(w.sizes.clusters), "requests/registration")
	w.report(after.hub-before.hub, "cpu-s/registration-hub")
	w.report(after.plane-before.plane, "cpu-s/registration-apiserver")
	w.report(after.fleet-before.fleet, "cpu-s/registration-fleet")
}

func (w *world) importAll(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, name := range w.fleet.clusters {
		group.Go(func() error {
			kubeconfig, talosconfig, err := w.fleet.credentials(i)
			if err != nil {
				return err
			}
			_, err = w.hub.service.Import(ctx, service.Import{Name: name, Namespace: namespace, Kubeconfig: kubeconfig, Talosconfig: talosconfig})
			return err
		})
	}
	return group.Wait()
}

// await begins to wait until condition Available of so many clusters has a status. The function that it returns tells when it got it, of each.
func (h *hub) await(ctx context.Context, status metav1.ConditionStatus, clusters int) (func(context.Context) ([]time.Time, error), error) {
	var mu sync.Mutex
	all, shown := make(chan struct{}), map[string]time.Time{}
	stop, err := h.follow(ctx, &v1alpha1.TalosCluster{}, func(object any) {
		mu.Lock()
		defer mu.Unlock()
		cluster := object.(*v1alpha1.TalosCluster) //nolint:forcetypeassert // It was asked for.
		_, known := shown[cluster.Name]
		switch has := meta.IsStatusConditionPresentAndEqual(cluster.Status.Conditions, v1alpha1.AvailableCondition, status); {
		case len(shown) == clusters: // All at once is what counts.
		case !has:
			delete(shown, cluster.Name)
		case !known:
			if shown[cluster.Name] = time.Now(); len(shown) == clusters {
				close(all)
			}
		}
	})
	return func(ctx context.Context) ([]time.Time, error) {
		defer stop()
		select {
		case <-all:
			return slices.Collect(maps.Values(shown)), nil
		case <-ctx.Done():
			mu.Lock()
			defer mu.Unlock()
			return nil, fmt.Errorf("%d of %d clusters have Available=%s: %w", len(shown), clusters, status, ctx.Err())
		}
	}, err
}

// pause lets time pass: idle is what happens when nothing happens.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// idle lists while the hub settles: it takes two minutes from the last change until every target is looked at once a minute.
func (w *world) idle(ctx context.Context) {
	settled := time.Now().Add(w.sizes.settle)
	w.measureLists(ctx, "idle")
	pause(ctx, time.Until(settled))
	w.measureUse(ctx, "idle", w.sizes.idle)
}

// measureUse measures what the processes take while nobody asks anything of them.
func (w *world) measureUse(ctx context.Context, name string, length time.Duration) {
	w.g.Expect(w.hub.saveProfiles(ctx, name, "profile", "heap", "goroutine")).To(Succeed())
	before, err := w.hub.usage(ctx, w.fleet)
	w.g.Expect(err).NotTo(HaveOccurred())
	pause(ctx, length)
	after, err := w.hub.usage(ctx, w.fleet)
	w.g.Expect(err).NotTo(HaveOccurred())
	seconds := after.at.Sub(before.at).Seconds()
	w.report((after.hub-before.hub)/seconds, "cores/"+name+"-hub")
	w.report((after.plane-before.plane)/seconds, "cores/"+name+"-apiserver")
	w.report((after.fleet-before.fleet)/seconds, "cores/"+name+"-fleet")
	w.report((after.requests-before.requests)/seconds/float64(w.sizes.clusters), "requests/s/target-"+name)
	w.reportMemory(name)
}

func (w *world) reportMemory(name string) {
	w.Helper()
	for process, pid := range map[string]int{"hub": w.hub.daemon.PID(), "apiserver": w.hub.plane, "simulator": w.fleet.pids()[0]} {
		megabytes, err := framework.ResidentMemory(pid)
		w.g.Expect(err).NotTo(HaveOccurred())
		w.report(megabytes, "MB/"+name+"-"+process)
	}
}

// measureLists lists all clusters: by the client that the command line uses, and by the command itself, its start included.
func (w *world) measureLists(ctx context.Context, name string) {
	var took []time.Duration
	for range lists {
		begun := time.Now()
		list := &v1alpha1.TalosClusterList{}
		w.g.Expect(w.hub.client.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
		took = append(took, time.Since(begun))
		w.g.Expect(list.Items).To(HaveLen(w.sizes.clusters))
	}
	w.report(quantile(took, 0.99).Seconds()*1000, "ms/list-p99-"+name)
	w.report(quantile(took, 0.5).Seconds()*1000, "ms/list-p50-"+name)

	binary, err := framework.Binary("ichor")
	w.g.Expect(err).NotTo(HaveOccurred())
	took = nil
	for range commands {
		begun := time.Now()
		w.g.Expect(exec.CommandContext(ctx, binary, "--kubeconfig", w.hub.kubeconfig(), "cluster", "list").Run()).To(Succeed())
		took = append(took, time.Since(begun))
	}
	w.report(quantile(took, 0.5).Seconds()*1000, "ms/list-command-p50-"+name)
}

// measureOperations reboots workers of a fifth of the fleet, taken from some clusters.
func (w *world) measureOperations(ctx context.Context, name string, from []string) {
	before, err := w.hub.usage(ctx, w.fleet)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(w.hub.saveRequests(ctx, name+"-before")).To(Succeed())
	begun := time.Now()
	result, err := w.hub.rebootWorkers(ctx, name, from[:max(w.sizes.clusters/busyPart, 1)])
	w.g.Expect(err).NotTo(HaveOccurred())
	took := time.Since(begun)
	w.g.Expect(w.hub.saveRequests(ctx, name+"-after")).To(Succeed())
	after, err := w.hub.usage(ctx, w.fleet)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.report(took.Seconds(), "s/operations-"+name)
	w.report(float64(result.missed), "missed/operations-"+name)
	w.report(bound(after.reconciles(before, "talosoperation"), 0.99)*1000, "ms/reconcile-p99-bound-"+name)
	w.report(bound(after.reconciles(before, "talosoperation"), 0.5)*1000, "ms/reconcile-p50-bound-"+name)
	w.report(bound(after.reconciles(before, "taloscluster"), 0.99)*1000, "ms/reconcile-cluster-p99-bound-"+name)
	w.report(quantile(result.dispatch, 0.99).Seconds()*1000, "ms/dispatch-p99-"+name)
	w.report(quantile(result.dispatch, 0.5).Seconds()*1000, "ms/dispatch-p50-"+name)
	w.report(quantile(result.handOver, 0.99).Seconds()*1000, "ms/handover-p99-"+name)
	w.report(quantile(result.handOver, 0.5).Seconds()*1000, "ms/handover-p50-"+name)
	w.report(quantile(result.took, 0.99).Seconds(), "s/operation-p99-"+name)
	w.report(quantile(result.took, 0.5).Seconds(), "s/operation-p50-"+name)
	w.report((after.requests-before.requests)/float64(2*max(w.sizes.clusters/busyPart, 1)), "requests/operation-"+name)
	w.report(after.hub-before.hub, "cpu-s/operations-hub-"+name)
	w.report(after.plane-before.plane, "cpu-s/operations-apiserver-"+name)
	w.report(after.fleet-before.fleet, "cpu-s/operations-fleet-"+name)
}

// blackhole cuts off two clusters of five, and measures when that shows and what it does to the others.
func (w *world) blackhole(ctx context.Context) {
	var gone []int
	var left []string
	for i, name := range w.fleet.clusters {
		if i%5 < goneOf5 {
			gone = append(gone, i)
		} else {
			left = append(left, name)
		}
	}
	unavailable, err := w.hub.await(ctx, metav1.ConditionFalse, len(gone))
	w.g.Expect(err).NotTo(HaveOccurred())
	begun := time.Now()
	w.g.Expect(w.fleet.blackhole(ctx, gone)).To(Succeed())
	times, err := unavailable(ctx)
	w.g.Expect(err).NotTo(HaveOccurred())
	var took []time.Duration
	for _, shown := range times {
		took = append(took, shown.Sub(begun))
	}
	w.report(quantile(took, 0.5).Seconds(), "s/outage-shows-p50")
	w.report(quantile(took, 1).Seconds(), "s/outage-shows-all")
	w.measureUse(ctx, "blackhole", w.sizes.idle/2)
	w.measureLists(ctx, "blackhole")
	w.measureOperations(ctx, "blackhole", left)
}
