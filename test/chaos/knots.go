// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// knotLooks is for how many looks a worker may be waited for in vain before a person is thought to have a look.
const knotLooks = 40

// untie does what a person has to do where two operations wait for each other: one failed and left a worker cordoned, another took the lock
// over and waits for that worker, and the first, asked to go on, waits for the lock. The person takes the cordon off.
func (r *run) untie(ctx context.Context, op *v1alpha1.TalosOperation, waits map[types.UID]int) error {
	if !waitsForWorkers(op) {
		delete(waits, op.UID)
		return nil
	}
	waits[op.UID]++
	if waits[op.UID] < knotLooks {
		return nil
	}
	delete(waits, op.UID)
	target, err := r.target(op.Spec.ClusterName)
	if err != nil {
		return err
	}
	nodes, err := target.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing the Nodes of cluster %s: %w", op.Spec.ClusterName, err)
	}
	for _, node := range nodes.Items {
		owner := node.Annotations[v1alpha1.CordonedByAnnotation]
		if owner == "" || owner == client.ObjectKeyFromObject(op).String() {
			continue
		}
		r.untied++
		r.log.note("uncordoning %s of %s: %s waits for it, and it was cordoned by %s", node.Name, op.Spec.ClusterName, op.Name, owner)
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}},"spec":{"unschedulable":null}}`, v1alpha1.CordonedByAnnotation)
		if _, err := target.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("uncordoning %s of cluster %s: %w", node.Name, op.Spec.ClusterName, err)
		}
	}
	return nil
}

func waitsForWorkers(op *v1alpha1.TalosOperation) bool {
	progressing := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ProgressingCondition)
	return progressing != nil && progressing.Reason == v1alpha1.WorkersAvailableGate && holdsLock(op)
}

// target is an administrator's access to a cluster.
func (r *run) target(cluster string) (kubernetes.Interface, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(r.harness.Fleet.Cluster(cluster).Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of cluster %s: %w", cluster, err)
	}
	return kubernetes.NewForConfig(config)
}
