// SPDX-License-Identifier: Apache-2.0

package deep

import (
	"context"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/test/sim/kubeapi"
)

// Create makes an object as a kubelet. A kubelet may not give its own node a role, so the administrator does that, as Talos has it.
func (s *namedStore) Create(r *kubeapi.Resource, obj kubeapi.Object, dryRun bool) (kubeapi.Object, error) {
	roles := map[string]string{}
	if r == kubeapi.Nodes {
		labels := maps.Clone(obj.GetLabels())
		maps.DeleteFunc(labels, func(key, value string) bool {
			role := strings.HasPrefix(key, "node-role.kubernetes.io/")
			if role {
				roles[key] = value
			}
			return role
		})
		obj.SetLabels(labels)
	}
	made, err := s.create(s.owner, r, obj, dryRun)
	if err != nil || len(roles) == 0 {
		return made, err
	}
	return s.Store.Update(r, made.GetNamespace(), made.GetName(), dryRun, func(o kubeapi.Object) (kubeapi.Object, error) {
		labels := maps.Clone(o.GetLabels())
		maps.Copy(labels, roles)
		o.SetLabels(labels)
		return o, nil
	})
}

// Update changes an object as a kubelet.
func (s *namedStore) Update(
	r *kubeapi.Resource, namespace, name string, _ bool, modify func(kubeapi.Object) (kubeapi.Object, error),
) (kubeapi.Object, error) {
	return s.update(s.owner, r, namespace, name, modify)
}

// Delete removes an object as a kubelet.
func (s *namedStore) Delete(r *kubeapi.Resource, namespace, name string, dryRun bool) (kubeapi.Object, error) {
	return s.remove(s.owner, r, namespace, name, dryRun)
}

// replacePod does what is no update of a pod to an API server: binding one to a node, and beginning its end.
func (s *Store) replacePod(r *kubeapi.Resource, old, now kubeapi.Object) (done bool, written kubeapi.Object, err error) {
	if r != kubeapi.Pods {
		return false, nil, nil
	}
	before, after := old.(*corev1.Pod), now.(*corev1.Pod) //nolint:forcetypeassert // They are pods.
	switch {
	case before.Spec.NodeName == "" && after.Spec.NodeName != "":
		binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: after.Spec.NodeName}}
		err = s.write("", func(ctx context.Context, c client.Client) error {
			return c.SubResource("binding").Create(ctx, before.DeepCopy(), binding)
		})
	case before.DeletionTimestamp == nil && after.DeletionTimestamp != nil:
		uid := before.UID
		err = s.write("", func(ctx context.Context, c client.Client) error {
			return c.Delete(ctx, before.DeepCopy(), client.GracePeriodSeconds(*after.DeletionGracePeriodSeconds),
				client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		})
	default:
		return false, nil, nil
	}
	if err != nil {
		return true, nil, err
	}
	written, err = s.read(r, old.GetNamespace(), old.GetName())
	return true, written, err
}
