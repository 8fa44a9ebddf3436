// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"testing"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
)

// What somebody tries without a hub is in the audit that a hub would have, and in sight while they watch; an outage ends the watch, and the
// next one goes on after it.
func TestAudit(t *testing.T) {
	g := NewWithT(t)
	namespace := newNamespace(t)
	c, cut := dial(t, "", namespace)
	entries := ichorv1alpha1connect.NewAuditServiceClient(c.HTTPClient(), c.URL())
	clusters := ichorv1alpha1connect.NewClusterServiceClient(c.HTTPClient(), c.URL())
	forget := func(name string) {
		_, err := clusters.ForgetCluster(t.Context(), connect.NewRequest(&pb.ForgetClusterRequest{Ref: &pb.Reference{Namespace: namespace, Name: name}}))
		g.Expect(err).To(HaveOccurred(), "there is none")
	}
	forget("c1")
	listed, err := entries.ListAudit(t.Context(), connect.NewRequest(&pb.ListAuditRequest{}))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(listed.Msg.GetEntries()).To(ConsistOf(And(
		HaveField("User", "ichor-admin"), HaveField("Action", "ForgetCluster"), HaveField("Cluster.Name", "c1"), HaveField("SelfReported", true), HaveField("Client", "test"),
	)))

	watch := func(token string) (*connect.ServerStreamForClient[pb.WatchAuditResponse], func() string) {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		stream, err := entries.WatchAudit(ctx, connect.NewRequest(&pb.WatchAuditRequest{ResumeToken: token}))
		g.Expect(err).NotTo(HaveOccurred())
		return stream, func() string {
			g.Expect(stream.Receive()).To(BeTrue(), "%v", stream.Err())
			if stream.Msg().GetSynced() != nil {
				return "synced"
			}
			return stream.Msg().GetEntry().GetCluster().GetName()
		}
	}
	stream, next := watch("")
	g.Expect([]string{next(), next()}).To(Equal([]string{"c1", "synced"}))
	forget("c2")
	g.Expect(next()).To(Equal("c2"))
	token := stream.Msg().GetResumeToken()

	cut.Store(true)
	g.Expect(stream.Receive()).To(BeFalse())
	g.Expect(connect.CodeOf(stream.Err())).To(Equal(connect.CodeUnavailable), "%v", stream.Err())
	cut.Store(false)
	forget("c3")
	_, next = watch(token)
	g.Expect([]string{next(), next()}).To(Equal([]string{"c3", "synced"}))
}

func TestAuditIsNotForEverybody(t *testing.T) {
	g := NewWithT(t)
	namespace := newNamespace(t)
	permit(t, "curious", namespace, "talosclusters")
	c, _ := dial(t, "curious", namespace)
	entries := ichorv1alpha1connect.NewAuditServiceClient(c.HTTPClient(), c.URL())
	_, err := entries.ListAudit(t.Context(), connect.NewRequest(&pb.ListAuditRequest{}))
	g.Expect(connect.CodeOf(err)).To(Equal(connect.CodePermissionDenied), "%v", err)
	stream, err := entries.WatchAudit(t.Context(), connect.NewRequest(&pb.WatchAuditRequest{}))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(stream.Receive()).To(BeFalse())
	g.Expect(connect.CodeOf(stream.Err())).To(Equal(connect.CodePermissionDenied), "%v", stream.Err())
}
