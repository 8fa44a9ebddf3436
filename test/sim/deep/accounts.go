// SPDX-License-Identifier: Apache-2.0

package deep

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/test/sim/kubeapi"
)

// SyncAccounts is the controller of service accounts: without a default one no pod can be made in a namespace.
func (s *Store) SyncAccounts() {
	spaces, _ := s.List(kubeapi.Namespaces, "")
	for _, space := range spaces {
		if space.GetDeletionTimestamp() != nil || s.hasAccount(space.GetName()) {
			continue
		}
		_, _ = s.Create(kubeapi.ServiceAccounts, &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Namespace: space.GetName(), Name: "default"},
		}, false) // What fails is tried again.
	}
}

func (s *Store) hasAccount(namespace string) bool {
	accounts, _ := s.List(kubeapi.ServiceAccounts, namespace)
	for _, account := range accounts {
		if account.GetName() == "default" {
			return true
		}
	}
	return false
}
