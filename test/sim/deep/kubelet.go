// SPDX-License-Identifier: Apache-2.0

package deep

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// beatEvery is the pause between two signs of life of a kubelet.
	beatEvery = 2 * time.Second
	// beatsMissed is how many have to fail until its node counts as silent. Those that fail since no API server serves do not count: a node
	// controller that sees all nodes go silent at once blames itself.
	beatsMissed = 3
)

// Kubelets are the signs of life of the machines' kubelets: each renews the Lease of its node with its own client certificate, as real ones
// do. A kubelet that an API server does not accept any more, or that does not accept the API server, falls silent.
type Kubelets struct {
	store *Store

	mu     sync.Mutex
	missed map[string]int // Failures in a row, by the names of the nodes.
}

// NewKubelets makes them. Whoever follows the store hears when a node has fallen silent, and when it is heard of again.
func (s *Store) NewKubelets() *Kubelets { return &Kubelets{store: s, missed: map[string]int{}} }

// Run lets the kubelet of a node live until the cluster ends. ready says whether the machine runs it.
func (k *Kubelets) Run(node string, ready func() bool) {
	k.store.cluster.group.Go(func() {
		for await(k.store.cluster.life, nil, beatEvery) == nil {
			if ready() {
				k.heard(node, k.beat(node))
			}
		}
	})
}

// Alive says whether a node was heard of lately.
func (k *Kubelets) Alive(node string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.missed[node] < beatsMissed
}

// heard notes how a sign of life went.
func (k *Kubelets) heard(node string, err error) {
	serving := k.store.cluster.Serving()
	k.mu.Lock()
	before := k.missed[node] < beatsMissed
	switch {
	case err == nil:
		k.missed[node] = 0
	case serving:
		k.missed[node]++
	}
	after := k.missed[node] < beatsMissed
	k.mu.Unlock()
	if before == after {
		return
	}
	if err != nil {
		k.store.cluster.Logger.Info("A kubelet has fallen silent", "cluster", k.store.cluster.Name, "node", node, "reason", err.Error())
	}
	k.store.Poke()
}

// beat renews the node's Lease, or makes it.
func (k *Kubelets) beat(node string) error {
	c, err := k.store.client(node)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(k.store.cluster.life, beatEvery)
	defer cancel()
	lease := &coordinationv1.Lease{}
	err = c.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: node}, lease)
	now := metav1.NowMicro()
	if apierrors.IsNotFound(err) {
		return c.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(node), LeaseDurationSeconds: ptr.To[int32](40), RenewTime: &now},
		})
	}
	if err != nil {
		return err
	}
	lease.Spec.RenewTime = &now
	return c.Update(ctx, lease)
}
