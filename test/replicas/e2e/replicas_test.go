// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/auth/session"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/hub/service"
	"ichor.maesh.dev/hub/hub/standalone/pki"
	"ichor.maesh.dev/hub/test/framework"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim"
)

const (
	// killsVariable says how often the leader is killed.
	killsVariable = "REPLICAS_KILLS"
	usualKills    = "5"

	namespace = "default"
	clusters  = 10

	// speed is how much faster than in the demo the fleet lives.
	speed = 4

	leaseDuration = 6 * time.Second
	renewDeadline = 4 * time.Second
	retryPeriod   = time.Second

	// most is how long after a kill the next leader works at the latest.
	most = leaseDuration + 5*time.Second
)

// world is a management API with two hubs, and a fleet.
type world struct {
	g       *WithT
	fleet   *sim.Simulator
	plane   *framework.Plane
	client  client.WithWatch
	service *service.Service

	binary, dir string
	certificate pki.SelfSigned // That of every replica.
	sessions    *session.Sessions
	started     int
	replicas    []*replica
	signs       *signs
	killsLeft   int

	rung     map[string]int // How many upgrades of a cluster were ordered.
	killedAt []time.Time
	ended    int // Replicas that have ended by themselves, since they could not renew in time.
}

func newWorld(ctx context.Context, t *testing.T) *world {
	t.Helper()
	w := &world{g: NewWithT(t), dir: t.TempDir(), rung: map[string]int{}}
	var err error
	w.binary, err = framework.Binary("ichor-hub")
	w.g.Expect(err).NotTo(HaveOccurred())
	w.plane, err = framework.StartPlane(ctx)
	w.g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(w.plane.Stop()).To(Succeed()) })
	w.fleet, err = sim.Start(ctx, sim.Options{Dir: filepath.Join(w.dir, "fleet"), Speed: speed, Clusters: specs()})
	w.g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(w.fleet.Stop)
	access := rest.CopyConfig(w.plane.Config)
	access.QPS = -1
	w.client, err = client.NewWithWatch(access, client.Options{Scheme: scheme.New()})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.service = &service.Service{Client: w.client, Now: time.Now}
	w.prepareToServe(ctx)
	w.signs, err = watchForSigns(ctx, w.client, w.fleet.Journal())
	w.g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		for _, r := range w.replicas {
			r.stop()
		}
		if t.Failed() {
			w.showLogs(t)
		}
	})
	return w
}

func specs() []sim.ClusterSpec {
	shapes := [][2]int{{3, 0}, {1, 2}}
	list := make([]sim.ClusterSpec, 0, clusters)
	for i := range clusters {
		shape := shapes[i%len(shapes)]
		list = append(list, sim.ClusterSpec{Name: "c" + strconv.Itoa(i+1), ControlPlanes: shape[0], Workers: shape[1]})
	}
	return list
}

// start starts one more replica.
func (w *world) start() {
	w.started++
	name := strconv.Itoa(w.started)
	listen, err := framework.FreeAddress(context.Background())
	w.g.Expect(err).NotTo(HaveOccurred())
	r, err := startReplica(w.binary, name, w.plane.HubKubeconfig, w.logOf(name), listen, w.certificate)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.replicas = append(w.replicas, r)
}

// showLogs shows how the logs of all replicas end.
func (w *world) showLogs(t *testing.T) {
	t.Helper()
	const most = 4 << 10
	for i := range w.started {
		log, err := os.ReadFile(w.logOf(strconv.Itoa(i + 1)))
		t.Logf("replica %d: %v\n%s", i+1, err, log[max(0, len(log)-most):])
	}
}

func (w *world) logOf(replica string) string { return filepath.Join(w.dir, "hub-"+replica+".log") }

// keepTwo replaces replicas that have ended.
func (w *world) keepTwo() {
	for _, r := range w.replicas {
		if is(r.gone) {
			w.ended++
		}
	}
	w.replicas = slices.DeleteFunc(w.replicas, func(r *replica) bool { return is(r.gone) })
	for len(w.replicas) < 2 {
		w.start()
	}
}

// elected waits until one replica leads and the other stands by, and returns the leader.
func (w *world) elected(ctx context.Context) *replica {
	var leader *replica
	w.g.Eventually(ctx, func() bool {
		w.keepTwo()
		for i, r := range w.replicas {
			if is(r.leads) && is(w.replicas[1-i].candidate) {
				leader = r
				return true
			}
		}
		return false
	}).WithTimeout(time.Minute).WithPolling(20 * time.Millisecond).Should(BeTrue())
	return leader
}

// kill kills the leader, and says how long it took until another one led, and until that worked.
func (w *world) kill(ctx context.Context, leader *replica) (led, worked time.Duration) {
	other := w.replicas[slices.IndexFunc(w.replicas, func(r *replica) bool { return r != leader })]
	at, err := leader.kill()
	w.g.Expect(err).NotTo(HaveOccurred())
	w.killedAt = append(w.killedAt, at)
	w.replicas = []*replica{other}
	w.start()
	w.g.Eventually(ctx, func() bool { // Whichever is first.
		w.keepTwo()
		return slices.ContainsFunc(w.replicas, func(r *replica) bool { return is(r.leads) })
	}).WithTimeout(time.Minute).WithPolling(10 * time.Millisecond).Should(BeTrue())
	since := time.Now()
	return since.Sub(at), w.signs.after(ctx, w.g, since).Sub(at)
}

// order starts an upgrade of every cluster that has none, and says how many are unfinished.
func (w *world) order(ctx context.Context) (unfinished int) {
	list := &v1alpha1.TalosOperationList{}
	w.g.Expect(w.client.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	busy := map[string]bool{}
	for i := range list.Items {
		if op := &list.Items[i]; !op.Completed() || op.Annotations[v1alpha1.CompletedAtAnnotation] == "" {
			busy[op.Spec.ClusterName] = true
		}
	}
	for _, cluster := range w.fleet.Clusters() {
		if busy[cluster.Name()] || w.killsLeft == 0 {
			continue
		}
		start, err := w.service.Plan(ctx, service.Order{
			Cluster: client.ObjectKey{Namespace: namespace, Name: cluster.Name()},
			Spec:    v1alpha1.TalosOperationSpec{ClusterName: cluster.Name(), Kind: v1alpha1.TalosKind},
			Target:  v1alpha1.OperationTarget{TalosVersion: w.version(cluster.Name(), 1)},
		})
		w.g.Expect(err).NotTo(HaveOccurred())
		_, err = w.service.Create(ctx, start, service.CreateOptions{})
		w.g.Expect(err).NotTo(HaveOccurred())
		w.rung[cluster.Name()]++
		busy[cluster.Name()] = true
	}
	return len(busy)
}

// version is what a cluster runs after all upgrades that were ordered, and so many more.
func (w *world) version(cluster string, more int) string {
	return "v1.14." + strconv.Itoa(w.rung[cluster]+more)
}

// The leader dies again and again while ten clusters are upgraded: each time the other replica goes on, and nothing happens twice.
func TestLeaderIsKilled(t *testing.T) {
	kills, err := strconv.Atoi(cmp.Or(os.Getenv(killsVariable), usualKills))
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), killsVariable)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute+time.Duration(kills)*time.Minute)
	defer cancel()
	w := newWorld(ctx, t)
	w.killsLeft = kills
	w.keepTwo()
	w.importAll(ctx)
	w.order(ctx)

	var led, worked []time.Duration
	for ; w.killsLeft > 0; w.killsLeft-- {
		leader := w.elected(ctx)
		w.order(ctx)
		w.signs.after(ctx, w.g, time.Now()) // It is in the middle of something.
		l, s := w.kill(ctx, leader)
		led, worked = append(led, l), append(worked, s)
		t.Logf("kill %d: another replica led after %s and worked after %s", len(led), l.Round(time.Millisecond), s.Round(time.Millisecond))
	}
	w.g.Eventually(ctx, func() int { w.keepTwo(); return w.order(ctx) }).WithTimeout(5 * time.Minute).WithPolling(200 * time.Millisecond).Should(BeZero())
	w.expectNothingTwice(ctx)
	upgrades := 0
	for _, n := range w.rung {
		upgrades += n
	}
	t.Logf("%d kills, lease %s: led after %s, worked after %s; %d upgrades of %d clusters, %d journal entries, %d replicas ended by themselves",
		kills, leaseDuration, spread(led), spread(worked), upgrades, clusters, w.fleet.Journal().Last(), w.ended)
	w.g.Expect(slices.Max(worked)).To(BeNumerically("<=", most))
}

// spread is the least, the middle and the greatest of durations.
func spread(list []time.Duration) string {
	sorted := slices.Sorted(slices.Values(list))
	return fmt.Sprintf("%.1f/%.1f/%.1f s", sorted[0].Seconds(), sorted[len(sorted)/2].Seconds(), sorted[len(sorted)-1].Seconds())
}

func (w *world) importAll(ctx context.Context) {
	for _, cluster := range w.fleet.Clusters() {
		_, err := w.service.Import(ctx, service.Import{
			Name: cluster.Name(), Namespace: namespace, Kubeconfig: cluster.Kubeconfig(), Talosconfig: cluster.Talosconfig(),
		})
		w.g.Expect(err).NotTo(HaveOccurred())
	}
	w.g.Eventually(ctx, func() (waiting []string) {
		list := &v1alpha1.TalosClusterList{}
		w.g.Expect(w.client.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
		for _, c := range list.Items {
			if !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.AvailableCondition) {
				waiting = append(waiting, c.Name)
			}
		}
		return waiting
	}).WithTimeout(2 * time.Minute).WithPolling(100 * time.Millisecond).Should(BeEmpty())
}

// expectNothingTwice looks at the journal and at the machines.
func (w *world) expectNothingTwice(ctx context.Context) {
	for _, cluster := range w.fleet.Clusters() {
		name := cluster.Name()
		rules := invariant.Rules{Cluster: name, Unheard: w.killedBetween}
		for _, node := range cluster.Nodes() {
			if node.ControlPlane() {
				rules.ControlPlanes = append(rules.ControlPlanes, node.Name())
			}
		}
		w.g.Expect(rules.Violations(w.fleet.Journal())).To(BeEmpty(), name)
		rolling := invariant.ReadRolling(w.fleet.Journal(), name)
		for _, node := range cluster.Nodes() {
			w.g.Expect(node.State().Running.Version).To(Equal(w.version(name, 0)), "%s of %s", node.Name(), name)
			w.g.Expect(rolling.Reboots).To(HaveKeyWithValue(node.Name(), w.rung[name]), "one reboot for each upgrade of %s", name)
		}
		w.g.Expect(w.leftovers(ctx, cluster)).To(BeEmpty())
	}
}

// killedBetween says whether a leader was killed between two moments.
func (w *world) killedBetween(_ string, from, to time.Time) bool {
	return slices.ContainsFunc(w.killedAt, func(at time.Time) bool { return !at.Before(from) && !at.After(to) })
}

func (w *world) leftovers(ctx context.Context, cluster *sim.Cluster) ([]string, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(cluster.Kubeconfig())
	if err != nil {
		return nil, err
	}
	target, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return invariant.Rest{Management: w.client, Target: target, Cluster: client.ObjectKey{Namespace: namespace, Name: cluster.Name()}}.Leftovers(ctx)
}
