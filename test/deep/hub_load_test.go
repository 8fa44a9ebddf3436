// SPDX-License-Identifier: Apache-2.0

package deep_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"ichor.maesh.dev/hub/test/sim"
)

const (
	// patience is how long a user tries, by new connections, before it gives something up: an API server takes seconds to start, and all
	// the others are behind the same load balancer.
	patience = 20 * time.Second
	// pace is the pause between two things that a user asks for.
	pace = 100 * time.Millisecond
	// perConnection is how often a user asks on one connection, unless that breaks earlier. So it meets new certificates soon.
	perConnection = 10
	// answerWithin bounds one answer.
	answerWithin = 5 * time.Second
)

// credentials are those that a user connects with, as they are at that moment.
type credentials func(context.Context) ([]byte, error)

// connection is a way into a cluster.
type connection interface {
	// ask asks for the nth thing.
	ask(ctx context.Context, nth int) error
	close()
}

// dial connects with credentials.
type dial func(ctx context.Context, with []byte) (connection, error)

// user asks a cluster for something, again and again. When a connection breaks it reads its credentials again and connects anew; what still
// fails then is kept.
type user struct {
	credentials credentials
	dial        dial

	mu         sync.Mutex
	asked      int
	reconnects int
	failures   []string
}

// use begins to ask, until the test is over or halt is called, which returns when it has ended.
func use(ctx context.Context, t *testing.T, by credentials, dial dial) (u *user, halt func()) {
	t.Helper()
	u = &user{credentials: by, dial: dial}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	halt = func() { cancel(); <-done }
	t.Cleanup(halt)
	go func() {
		defer close(done)
		u.run(ctx)
	}()
	return u, halt
}

func (u *user) run(ctx context.Context) {
	var open connection
	hangUp := func() {
		if open != nil {
			open.close()
			open = nil
		}
	}
	defer hangUp()
	for nth := 0; ctx.Err() == nil; nth++ {
		if nth%perConnection == 0 {
			hangUp()
		}
		var err error
		for until := time.Now().Add(patience); ; hangUp() {
			if open, err = u.once(ctx, open, nth); err == nil || ctx.Err() != nil || time.Now().After(until) {
				break
			}
			u.note(func() { u.reconnects++ })
			pause(ctx)
		}
		u.note(func() {
			switch {
			case err == nil:
				u.asked++
			case ctx.Err() == nil:
				u.failures = append(u.failures, fmt.Sprintf("%s: %s", time.Now().Format(time.TimeOnly), err))
			}
		})
		pause(ctx)
	}
}

func (u *user) once(ctx context.Context, open connection, nth int) (connection, error) {
	if open == nil {
		with, err := u.credentials(ctx)
		if err != nil {
			return nil, err
		}
		if open, err = u.dial(ctx, with); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return open, open.ask(ctx, nth)
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(pace):
	}
}

func (u *user) note(what func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	what()
}

// Failures are what the user has given up.
func (u *user) Failures() (list []string) {
	u.note(func() { list = slices.Clone(u.failures) })
	return list
}

// Asked is how much it got, and Reconnects how often a connection broke meanwhile.
func (u *user) Asked() (n int) {
	u.note(func() { n = u.asked })
	return n
}

func (u *user) Reconnects() (n int) {
	u.note(func() { n = u.reconnects })
	return n
}

// kept are credentials that somebody has copied.
func kept(data []byte) credentials {
	return func(context.Context) ([]byte, error) { return data, nil }
}

// asks connects with credentials and asks for one thing.
func asks(ctx context.Context, dial dial, with []byte) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	open, err := dial(ctx, with)
	if err != nil {
		return err
	}
	defer open.close()
	return open.ask(ctx, 0)
}

// talosUser asks machines for their version, by way of the endpoints.
type talosUser struct {
	client *talosclient.Client
	nodes  []*sim.Node
}

func dialTalos(nodes ...*sim.Node) dial {
	return func(ctx context.Context, talosconfig []byte) (connection, error) {
		config, err := clientconfig.FromBytes(talosconfig)
		if err != nil {
			return nil, err
		}
		client, err := talosclient.New(ctx, talosclient.WithConfig(config), talosclient.WithGRPCDialOptions(impatient))
		return &talosUser{client, nodes}, err
	}
}

func (u *talosUser) ask(ctx context.Context, _ int) error {
	for _, n := range u.nodes {
		if _, err := u.client.Version(at(ctx, n)); err != nil {
			return fmt.Errorf("%s: %w", n.Name(), err)
		}
	}
	return nil
}

func (u *talosUser) close() { _ = u.client.Close() }

// kubeUser does something with the Kubernetes API.
type kubeUser struct {
	client *kubernetes.Clientset
	do     func(ctx context.Context, client *kubernetes.Clientset, nth int) error
}

func dialKube(do func(ctx context.Context, client *kubernetes.Clientset, nth int) error) dial {
	return func(_ context.Context, kubeconfig []byte) (connection, error) {
		config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
		if err != nil {
			return nil, err
		}
		config.QPS = -1
		transport, err := rest.HTTPClientFor(config) // Clients of one config share their connections otherwise, and those outlive them.
		if err != nil {
			return nil, err
		}
		client, err := kubernetes.NewForConfigAndClient(config, transport)
		return &kubeUser{client, do}, err
	}
}

func (u *kubeUser) ask(ctx context.Context, nth int) error { return u.do(ctx, u.client, nth) }

func (u *kubeUser) close() {
	if client, ok := u.client.CoreV1().RESTClient().(*rest.RESTClient); ok {
		client.Client.CloseIdleConnections()
	}
}

// reads lists the Nodes.
func reads(ctx context.Context, client *kubernetes.Clientset, _ int) error {
	_, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	return err
}

// loadNamespace is where what users write is.
const loadNamespace = "kube-public"

// writes writes an object, and reads it. One that an earlier attempt has written is written.
func writes(ctx context.Context, client *kubernetes.Clientset, nth int) error {
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("load-%05d", nth)}}
	maps := client.CoreV1().ConfigMaps(loadNamespace)
	if _, err := maps.Create(ctx, made, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	_, err := maps.Get(ctx, made.Name, metav1.GetOptions{})
	return err
}

// expectWritten expects all that a user has written to be there.
func expectWritten(ctx context.Context, t *testing.T, client *kubernetes.Clientset, u *user) {
	t.Helper()
	g := NewWithT(t)
	list, err := client.CoreV1().ConfigMaps(loadNamespace).List(ctx, metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	var found []string
	for i := range list.Items {
		found = append(found, list.Items[i].Name)
	}
	for nth := range u.Asked() {
		g.Expect(found).To(ContainElement(fmt.Sprintf("load-%05d", nth)))
	}
}
