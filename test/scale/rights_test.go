// SPDX-License-Identifier: Apache-2.0

package scale_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/access"
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
	// rightsNamespaces have a cluster each; boundNamespace is the one that users may read.
	rightsNamespaces = 3000
	boundNamespace   = "n0042"

	// newcomers list for the first time.
	newcomers = 5

	// rightsTime is how long a watch and warm lists go on: longer than what may not be read is remembered.
	rightsTime, listEvery = 150 * time.Second, 200 * time.Millisecond

	userHeader = "Benchmark-User"
)

// rightsWorld is a hub's access to a management API whose users may read one namespace of many.
type rightsWorld struct {
	*access.Access
	*testing.B

	g      *WithT
	fleet  *fleetpkg.Fleet
	server *httptest.Server

	mu    sync.Mutex
	asked map[string]int // SubjectAccessReviews, by user.
}

// Fleet implements service.Backend.
func (w *rightsWorld) Fleet(context.Context, ...string) (*fleetpkg.Fleet, []*pb.Failure, error) {
	return w.fleet, nil, nil
}

// BenchmarkRights lists and watches clusters as somebody who may read 1 of 3,000 namespaces, and counts what that asks the management API.
func BenchmarkRights(b *testing.B) {
	for range b.N {
		ctx, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
		w := &rightsWorld{B: b, g: NewWithT(b), fleet: fleetpkg.New(), asked: map[string]int{}}
		w.start(ctx)
		w.measureCold(ctx)
		w.measureWarm(ctx)
		cancel()
	}
}

func (w *rightsWorld) start(ctx context.Context) {
	plane, err := framework.StartPlane(ctx)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.Cleanup(func() { w.g.Expect(plane.Stop()).To(Succeed()) })
	log.SetLogger(logr.Discard())
	admin, err := client.New(plane.Config, client.Options{Scheme: scheme.New()})
	w.g.Expect(err).NotTo(HaveOccurred())
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: boundNamespace}},
		&rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: boundNamespace, Name: "reader"},
			Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"*"}}},
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: boundNamespace, Name: "readers"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "readers"}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		},
	} {
		w.g.Expect(admin.Create(ctx, object)).To(Succeed())
	}
	for i := range rightsNamespaces {
		w.fleet.Apply(&v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("n%04d", i), Name: "c1"}})
	}
	w.fleet.MarkSynced()

	plane.HubConfig.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, w} })
	w.Access, err = access.New(access.Options{Config: plane.HubConfig, Reader: admin, Scheme: scheme.New(), Mapper: admin.RESTMapper(), Clock: clock.RealClock{}})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Eventually(w.mayRead).WithArguments(ctx).WithTimeout(20 * time.Second).Should(BeTrue())

	mux := http.NewServeMux()
	routes.Mount(mux, &service.Server{Backend: w, Now: time.Now}, logr.Discard())
	w.server = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		caller := auth.Caller{Name: r.Header.Get(userHeader), Groups: []string{"readers", "system:authenticated"}}
		mux.ServeHTTP(rw, r.WithContext(auth.With(r.Context(), caller)))
	}))
	w.server.EnableHTTP2 = true
	w.server.StartTLS()
	w.Cleanup(w.server.Close)
}

// mayRead says whether the API server's own authorizer knows of the binding.
func (w *rightsWorld) mayRead(ctx context.Context) (bool, error) {
	session, err := w.Session(auth.With(ctx, auth.Caller{Name: "probe-" + time.Now().String(), Groups: []string{"readers"}}))
	if err != nil {
		return false, err
	}
	readable, _ := session.Rights.Readable(ctx, "talosclusters", []string{boundNamespace})
	return readable[boundNamespace], nil
}

// counting counts SubjectAccessReviews by who they are about.
type counting struct {
	next  http.RoundTripper
	world *rightsWorld
}

// RoundTrip implements http.RoundTripper.
func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/subjectaccessreviews") {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
		c.world.mu.Lock()
		for _, user := range []string{"newcomer", "lister", "watcher"} {
			if bytes.Contains(body, []byte(user)) {
				c.world.asked[user]++
			}
		}
		c.world.mu.Unlock()
	}
	return c.next.RoundTrip(r)
}

// count is how many reviews there were about a user since it was asked last.
func (w *rightsWorld) count(user string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	asked := w.asked[user]
	w.asked[user] = 0
	return asked
}

func (w *rightsWorld) clusters() ichorv1alpha1connect.ClusterServiceClient {
	return ichorv1alpha1connect.NewClusterServiceClient(w.server.Client(), w.server.URL)
}

// list lists as a user, and says how long that took.
func (w *rightsWorld) list(ctx context.Context, user string) time.Duration {
	request := connect.NewRequest(&pb.ListClustersRequest{})
	request.Header().Set(userHeader, user)
	begun := time.Now()
	answer, err := w.clusters().ListClusters(ctx, request)
	took := time.Since(begun)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(answer.Msg.GetClusters()).To(HaveLen(1))
	w.g.Expect(answer.Msg.GetFailures()).To(BeEmpty())
	return took
}

func (w *rightsWorld) tell(value float64, unit string) {
	w.Helper()
	w.Logf("%12.3f %s", value, unit)
	w.ReportMetric(value, unit)
}

func (w *rightsWorld) tellTime(took time.Duration, unit string) {
	w.Helper()
	w.tell(float64(took.Microseconds())/1000, unit)
}

// measureCold lists as users of whom nothing is known yet.
func (w *rightsWorld) measureCold(ctx context.Context) {
	var durations []time.Duration
	for i := range newcomers {
		durations = append(durations, w.list(ctx, fmt.Sprintf("newcomer-%d", i)))
	}
	w.tellTime(quantile(durations, 0.5), "ms/cold-list-p50")
	w.tellTime(quantile(durations, 1), "ms/cold-list-max")
	w.tell(float64(w.count("newcomer"))/newcomers, "reviews/cold-list")
}

// measureWarm keeps a watch open, and lists again and again as another user.
func (w *rightsWorld) measureWarm(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	request := connect.NewRequest(&pb.WatchClustersRequest{})
	request.Header().Set(userHeader, "watcher")
	stream, err := w.clusters().WatchClusters(ctx, request)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(stream.Receive()).To(BeTrue())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for stream.Receive() { // It only has to be read.
		}
	}()
	w.list(ctx, "lister")
	w.count("watcher")
	w.count("lister")
	ticker := time.NewTicker(listEvery)
	defer ticker.Stop()
	var durations []time.Duration
	begun := time.Now()
	for time.Since(begun) < rightsTime {
		durations = append(durations, w.list(ctx, "lister"))
		<-ticker.C
	}
	minutes := time.Since(begun).Minutes()
	w.tell(float64(w.count("watcher"))/minutes, "reviews/watch-minute")
	w.tell(float64(w.count("lister"))/minutes, "reviews/lister-minute")
	w.tellTime(quantile(durations, 0.5), "ms/warm-list-p50")
	w.tellTime(quantile(durations, 0.99), "ms/warm-list-p99")
	w.tellTime(quantile(durations, 1), "ms/warm-list-max")
	stop()
	<-watched
	w.g.Expect(quantile(durations, 0.99)).To(BeNumerically("<=", listLimit))
}
