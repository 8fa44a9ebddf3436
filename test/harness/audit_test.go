// SPDX-License-Identifier: Apache-2.0

package harness_test

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/config/rbac"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
	"ichor.maesh.dev/hub/test/harness"
)

// A hub that serves tells its audit, to those who may read it; somebody without any right who calls again and again, and hangs up at once, has
// not filled it; and a hub that begins anew says the same.
func TestAuditOfAServedHub(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	h, err := harness.Start(ctx, harness.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(h.Stop()).To(Succeed()) })
	nobody := callerOf(g, h, "nobody")
	alice := callerOf(g, h, "alice", rbac.AdminsGroup)
	retry := func(ctx context.Context, by caller) error {
		_, err := by.operations.RetryOperation(ctx, connect.NewRequest(&pb.RetryOperationRequest{Ref: &pb.Reference{Namespace: harness.Namespace, Name: "nothing"}}))
		return err
	}
	g.Eventually(ctx, func() connect.Code { return connect.CodeOf(retry(ctx, alice)) }).WithTimeout(30*time.Second).
		Should(Equal(connect.CodeNotFound), "a hub says it when it has read everything")
	const calls = 60
	for i := range calls {
		at, end := context.WithTimeout(ctx, time.Duration(i%3+1)*time.Millisecond)
		g.Expect(retry(at, nobody)).NotTo(Succeed())
		end()
	}
	g.Expect(connect.CodeOf(retry(ctx, nobody))).To(Equal(connect.CodePermissionDenied))

	list := func(by caller, users ...string) ([]*pb.AuditEntry, error) {
		answer, err := by.audit.ListAudit(ctx, connect.NewRequest(&pb.ListAuditRequest{Filter: &pb.AuditFilter{Users: users}}))
		if err != nil {
			return nil, err
		}
		return answer.Msg.GetEntries(), nil
	}
	told := func() ([]*pb.AuditEntry, error) { return list(alice, "alice") }
	g.Eventually(ctx, told).WithTimeout(30 * time.Second).Should(ContainElement(And(
		HaveField("Action", "RetryOperation"), HaveField("Result", pb.AuditResult_AUDIT_RESULT_REFUSED), HaveField("SelfReported", false),
	)))
	entries, err := list(alice, "nobody")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(entries)).To(BeNumerically("<", calls*2/3), "what came to nothing is limited")
	entries, err = list(nobody)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(entries).To(BeEmpty(), "who may read nothing is told nothing")

	before, err := told()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(h.StopHub()).To(Succeed())
	g.Expect(h.StartHub()).To(Succeed())
	g.Eventually(ctx, func() (int, error) {
		entries, err := told()
		return len(entries), err
	}).WithTimeout(30 * time.Second).Should(Equal(len(before)))
}

// caller is somebody who calls a hub.
type caller struct {
	operations ichorv1alpha1connect.OperationServiceClient
	audit      ichorv1alpha1connect.AuditServiceClient
}

func callerOf(g *WithT, h *harness.Harness, user string, groups ...string) caller {
	token, err := h.Token(user, groups...)
	g.Expect(err).NotTo(HaveOccurred())
	client, err := h.HTTPClient(token, 2)
	g.Expect(err).NotTo(HaveOccurred())
	return caller{ichorv1alpha1connect.NewOperationServiceClient(client, h.URL()), ichorv1alpha1connect.NewAuditServiceClient(client, h.URL())}
}
