// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestRecordIsReadAsItWasWritten(t *testing.T) {
	g := NewWithT(t)
	c := &connection{clients: fake.NewClientset(), guard: func(context.Context) error { return nil }}
	none, err := c.Record(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(none).To(Equal(Record{}))

	wrote := Record{OwnerID: "owner", OperationID: "op", Stage: "Upgrade", Sequence: 7}
	g.Expect(c.WriteRecord(t.Context(), wrote)).To(Succeed())
	read, err := c.Record(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(read.Same(wrote)).To(BeTrue())
	g.Expect(apierrors.IsAlreadyExists(errors.Unwrap(c.WriteRecord(t.Context(), wrote)))).To(BeTrue(),
		"two hubs that find no record do not both write one")
}

func TestRecordThatCannotBeReadIsNamed(t *testing.T) {
	c := &connection{clients: fake.NewClientset(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: RecordNamespace, Name: RecordName}, Data: map[string]string{"sequence": "many"},
	})}
	_, err := c.Record(t.Context())
	NewWithT(t).Expect(err).To(MatchError(`ConfigMap kube-system/ichor-hub: sequence is "many", and not a whole number from 0`))
}
