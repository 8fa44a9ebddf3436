// SPDX-License-Identifier: Apache-2.0

package scale_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/auth"
	fleetpkg "ichor.maesh.dev/hub/hub/fleet"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/hub/server/routes"
	"ichor.maesh.dev/hub/hub/service"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
	"ichor.maesh.dev/hub/test/framework"
)

const (
	readClusters, readMachines, readOperations = 100, 5, 1000

	// readers watch at once, and see as many changes.
	readers, readChanges = 200, 50

	// readLists is how often each list is asked for.
	readLists = 300

	listLimit, watchLimit = 100 * time.Millisecond, time.Second
)

// reads is the service over an API server with many operations, served as a hub serves it but for who may see what: everybody may.
type reads struct {
	*testing.B

	g      *WithT
	admin  client.Client
	fleet  *fleetpkg.Fleet
	server *httptest.Server
}

// Session implements service.Backend.
func (r *reads) Session(context.Context) (*service.Session, error) {
	return &service.Session{Caller: auth.Caller{Name: "ada"}, Client: r.admin, Rights: everything{}}, nil
}

// Fleet implements service.Backend.
func (r *reads) Fleet(context.Context, ...string) (*fleetpkg.Fleet, []*pb.Failure, error) {
	return r.fleet, nil, nil
}

// everything are the rights of whoever may read everything.
type everything struct{}

func (everything) May(context.Context, authorizationv1.ResourceAttributes) error { return nil }

func (everything) Readable(_ context.Context, _ string, namespaces []string) (map[string]bool, []*pb.Failure) {
	readable := map[string]bool{}
	for _, namespace := range namespaces {
		readable[namespace] = true
	}
	return readable, nil
}

// BenchmarkServiceReads lists 1,000 operations of 100 clusters, and counts how long a change takes from the write to each of 200 watchers. It
// fails beyond 100 ms (p99), and beyond a second (all of them).
func BenchmarkServiceReads(b *testing.B) {
	for range b.N {
		r := &reads{B: b, g: NewWithT(b)}
		ctx, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
		r.start(ctx)
		r.measureList(ctx, "page", 100)
		r.measureList(ctx, "all", readOperations)
		r.measureWatch(ctx)
		cancel()
	}
}

func (r *reads) start(ctx context.Context) {
	plane, err := framework.StartPlane(ctx)
	r.g.Expect(err).NotTo(HaveOccurred())
	r.Cleanup(func() { r.g.Expect(plane.Stop()).To(Succeed()) })
	plane.Config.QPS, plane.HubConfig.QPS = -1, -1
	log.SetLogger(logr.Discard())
	r.admin, err = client.New(plane.Config, client.Options{Scheme: scheme.New()})
	r.g.Expect(err).NotTo(HaveOccurred())
	r.g.Expect(r.create(ctx)).To(Succeed())

	informers, err := cache.New(plane.HubConfig, cache.Options{Scheme: scheme.New()})
	r.g.Expect(err).NotTo(HaveOccurred())
	r.fleet = fleetpkg.New()
	running, stop := context.WithCancel(ctx)
	r.Cleanup(stop)
	go informers.Start(running)          //nolint:errcheck // It ends with the benchmark.
	go r.fleet.Start(running, informers) //nolint:errcheck // Likewise.
	r.g.Expect(r.fleet.WaitForSync(ctx)).To(Succeed())

	mux := http.NewServeMux()
	routes.Mount(mux, &service.Server{Backend: r, Now: time.Now}, logr.Discard())
	r.server = httptest.NewUnstartedServer(mux)
	r.server.EnableHTTP2 = true
	r.server.StartTLS()
	r.Cleanup(r.server.Close)
}

// create creates clusters, machines, and operations that have been through all of their steps.
func (r *reads) create(ctx context.Context) error {
	workers, ctx := errgroup.WithContext(ctx)
	workers.SetLimit(20)
	for i := range readClusters {
		workers.Go(func() error {
			name := fmt.Sprintf("c%03d", i)
			if err := r.admin.Create(ctx, &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}); err != nil {
				return err
			}
			for m := range readMachines {
				machine := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-m%d", name, m)}}
				machine.Spec = v1alpha1.TalosMachineSpec{ClusterName: name, Role: v1alpha1.WorkerRole, Approval: v1alpha1.Approved}
				if err := r.admin.Create(ctx, machine); err != nil {
					return err
				}
			}
			for o := range readOperations / readClusters {
				if err := r.createOperation(ctx, name, o); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return workers.Wait()
}

func (r *reads) createOperation(ctx context.Context, cluster string, number int) error {
	op := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-up-%d", cluster, number)}}
	op.Spec = v1alpha1.TalosOperationSpec{ClusterName: cluster, Kind: v1alpha1.TalosKind}
	if err := r.admin.Create(ctx, op); err != nil {
		return err
	}
	now := metav1.Now()
	op.Status = v1alpha1.TalosOperationStatus{
		Phase: v1alpha1.OperationInProgress, Stage: "Upgrade", StartTime: now, Target: &v1alpha1.OperationTarget{TalosVersion: "v1.14.1"},
	}
	if number > 0 {
		op.Status.Phase, op.Status.CompletionTime = v1alpha1.OperationCompleted, now
	}
	for _, kind := range []string{"Succeeded", "Progressing", "Paused", "TargetSuperseded", "LockHeld"} {
		op.Status.Conditions = append(op.Status.Conditions, metav1.Condition{Type: kind, Status: "False", Reason: "Benchmark", LastTransitionTime: now})
	}
	for m := range readMachines {
		unit := v1alpha1.UnitStatus{Name: fmt.Sprintf("%s-m%d", cluster, m), Phase: v1alpha1.UnitCompleted, Stage: "Upgrade"}
		for _, step := range []v1alpha1.OperationStep{"Pulling", "Installing", "Draining", "Rebooting", "Verifying", "Uncordoning"} {
			unit.Steps = append(unit.Steps, v1alpha1.StepRecord{Step: step, Stage: "Upgrade", StartTime: now, CompletionTime: now})
		}
		op.Status.Machines = append(op.Status.Machines, unit)
	}
	return r.admin.Status().Update(ctx, op)
}

// report says a figure, in the log at once and among the results at the end.
func (r *reads) report(took time.Duration, unit string) {
	r.Helper()
	r.Logf("%12.3f %s", float64(took.Microseconds())/1000, unit)
	r.ReportMetric(float64(took.Microseconds())/1000, unit)
}

// newClient is a client with a connection of its own.
func (r *reads) newClient() ichorv1alpha1connect.OperationServiceClient {
	transport := r.server.Client().Transport.(*http.Transport).Clone() //nolint:forcetypeassert // That of httptest.
	r.Cleanup(transport.CloseIdleConnections)
	return ichorv1alpha1connect.NewOperationServiceClient(&http.Client{Transport: transport}, r.server.URL)
}

// measureList lists operations again and again, in pages of a size.
func (r *reads) measureList(ctx context.Context, name string, size int32) {
	operations := r.newClient()
	request := &pb.ListOperationsRequest{OrderBy: "attention desc", Page: &pb.Page{Size: size}}
	var durations []time.Duration
	for range readLists {
		begun := time.Now()
		answer, err := operations.ListOperations(ctx, connect.NewRequest(request))
		durations = append(durations, time.Since(begun))
		r.g.Expect(err).NotTo(HaveOccurred())
		r.g.Expect(answer.Msg.GetOperations()).To(HaveLen(int(size)))
		r.g.Expect(answer.Msg.GetTotalSize()).To(BeEquivalentTo(readOperations))
	}
	r.report(quantile(durations, 0.5), "ms/list-"+name+"-p50")
	r.report(quantile(durations, 0.99), "ms/list-"+name+"-p99")
	r.g.Expect(quantile(durations, 0.99)).To(BeNumerically("<=", listLimit))
}

// measureWatch writes changes one after the other, and waits until every watcher has heard of each.
func (r *reads) measureWatch(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	heard := make(chan time.Time, readers)
	var synced sync.WaitGroup
	synced.Add(readers)
	watching, ctx := errgroup.WithContext(ctx)
	for range readers {
		watching.Go(func() error { return r.watch(ctx, synced.Done, heard) })
	}
	synced.Wait()
	op := &v1alpha1.TalosOperation{}
	r.g.Expect(r.admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "c042-up-0"}, op)).To(Succeed())
	var durations []time.Duration
	for i := range readChanges {
		patched := op.DeepCopy()
		patched.Status.FailureReason = "change " + strconv.Itoa(i)
		begun := time.Now()
		r.g.Expect(r.admin.Status().Patch(ctx, patched, client.MergeFrom(op))).To(Succeed())
		for range readers {
			durations = append(durations, (<-heard).Sub(begun))
		}
		op = patched
	}
	stop()
	r.g.Expect(watching.Wait()).To(Succeed())
	r.report(quantile(durations, 0.5), "ms/change-p50")
	r.report(quantile(durations, 0.99), "ms/change-p99")
	r.report(quantile(durations, 1), "ms/change-max")
	r.g.Expect(quantile(durations, 1)).To(BeNumerically("<=", watchLimit))
}

// watch says when it has heard of everything that there is, and then when it hears of each change.
func (r *reads) watch(ctx context.Context, synced func(), heard chan<- time.Time) error {
	stream, err := r.newClient().WatchOperations(ctx, connect.NewRequest(&pb.WatchOperationsRequest{}))
	if err != nil {
		return err
	}
	defer stream.Close() //nolint:errcheck // It was only read.
	known := 0
	for stream.Receive() {
		switch stream.Msg().GetEvent().(type) {
		case *pb.WatchOperationsResponse_Synced:
			if known != readOperations {
				return fmt.Errorf("a watch began with %d operations", known)
			}
			synced()
		case *pb.WatchOperationsResponse_Changed:
			known++
			if known > readOperations {
				heard <- time.Now()
			}
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return stream.Err()
}
