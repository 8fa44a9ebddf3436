// SPDX-License-Identifier: Apache-2.0

// Package drain is how Talos itself empties a node: with the kubelet's credentials, over the network, and less thorough than
// kubectl. The upgrade and shutdown sequences of simulated machines use it.
package drain

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/test/sim/timing"
)

// gracePeriod is what Talos grants a pod.
const gracePeriod = 60

// Options say whose nodes are drained.
type Options struct {
	// Server is the URL of the Kubernetes API.
	Server string
	// Transport makes a node's way to it, which is closed after each use.
	Transport func(node string) (*http.Transport, error)
	// Cordoned says whether a node carries Talos's mark, which saves the way to the API at most boots.
	Cordoned func(node string) bool
	// Clock and Timings pace it.
	Clock   clock.WithDelayedExecution
	Timings timing.Timings
}

// Drainer drains the nodes of one cluster.
type Drainer struct{ Options }

// New makes the drainer of a cluster.
func New(o Options) *Drainer { return &Drainer{Options: o} }

// Drain cordons the node and evicts its pods, but for those of daemon sets, static ones and those that nothing owns. What it
// cannot evict in time stays, and that is no error.
func (d *Drainer) Drain(ctx context.Context, node string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer d.Clock.AfterFunc(d.Timings.Drain, cancel).Stop()
	return d.connected(node, func(api kubernetes.Interface) error {
		if err := changeNode(ctx, api, node, cordon); err != nil {
			return fmt.Errorf("cordon %s: %w", node, err)
		}
		pods, err := api.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
		})
		if err != nil {
			return fmt.Errorf("cannot get pods for node %s: %w", node, err)
		}
		d.evictAll(ctx, api, pods.Items)
		return nil
	})
}

// Uncordon takes back a cordon that Drain has made. It tries again until the API answers or the context ends.
func (d *Drainer) Uncordon(ctx context.Context, node string) error {
	for d.Cordoned(node) {
		err := d.connected(node, func(api kubernetes.Interface) error { return changeNode(ctx, api, node, uncordon) })
		if err == nil {
			return nil
		}
		if err := timing.Sleep(ctx, d.Clock, d.Timings.EvictionRetry); err != nil {
			return err
		}
	}
	return nil
}

func (d *Drainer) connected(node string, use func(kubernetes.Interface) error) error {
	transport, err := d.Transport(node)
	if err != nil {
		return fmt.Errorf("kubelet's credentials: %w", err)
	}
	defer transport.CloseIdleConnections()
	api, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: d.Server, QPS: -1}, &http.Client{Transport: transport})
	if err != nil {
		return fmt.Errorf("client of the Kubernetes API: %w", err)
	}
	return use(api)
}

func changeNode(ctx context.Context, api kubernetes.Interface, name string, change func(*corev1.Node) bool) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := api.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil || !change(node) {
			return err
		}
		_, err = api.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
}

// cordon marks the node as Talos's own, unless somebody else has cordoned it.
func cordon(node *corev1.Node) bool {
	if node.Spec.Unschedulable {
		return false
	}
	node.Spec.Unschedulable = true
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, constants.AnnotationCordonedKey, constants.AnnotationCordonedValue)
	return true
}

func uncordon(node *corev1.Node) bool {
	if _, own := node.Annotations[constants.AnnotationCordonedKey]; !own {
		return false
	}
	node.Spec.Unschedulable = false
	delete(node.Annotations, constants.AnnotationCordonedKey)
	return true
}

func (d *Drainer) evictAll(ctx context.Context, api kubernetes.Interface, pods []corev1.Pod) {
	var evictions sync.WaitGroup
	for i := range pods {
		if evictable(&pods[i]) {
			evictions.Go(func() { _ = d.evict(ctx, api, &pods[i]) })
		}
	}
	evictions.Wait()
}

func evictable(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	_, static := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return !static && owner != nil && owner.Kind != "DaemonSet"
}

// evict tries until the pod is gone, or the time for the drain is over.
func (d *Drainer) evict(ctx context.Context, api kubernetes.Interface, pod *corev1.Pod) error {
	for {
		err := api.CoreV1().Pods(pod.Namespace).EvictV1(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](gracePeriod)},
		})
		switch {
		case err == nil:
			return d.waitGone(ctx, api, pod)
		case apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsTooManyRequests(err):
			return err
		}
		if err := timing.Sleep(ctx, d.Clock, d.Timings.EvictionRetry); err != nil {
			return err
		}
	}
}

func (d *Drainer) waitGone(ctx context.Context, api kubernetes.Interface, pod *corev1.Pod) error {
	for {
		now, err := api.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && now.UID != pod.UID {
			return nil
		}
		if err := timing.Sleep(ctx, d.Clock, d.Timings.EvictionRetry); err != nil {
			return err
		}
	}
}
