// SPDX-License-Identifier: Apache-2.0

package workload

import (
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/test/sim/kubeapi"
)

// syncAccounts is the controller of service accounts: every namespace has a default one, without which no pod can be made there.
func (c *Controller) syncAccounts() {
	spaces, _ := c.Store.List(kubeapi.Namespaces, "")
	for _, space := range spaces {
		if space.GetDeletionTimestamp() != nil {
			continue
		}
		if _, err := c.Store.Get(kubeapi.ServiceAccounts, space.GetName(), "default"); apierrors.IsNotFound(err) {
			c.create(kubeapi.ServiceAccounts, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: space.GetName(), Name: "default"}})
		}
	}
}
