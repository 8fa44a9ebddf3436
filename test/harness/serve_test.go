// SPDX-License-Identifier: Apache-2.0

package harness_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/config/rbac"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
	"ichor.maesh.dev/hub/test/harness"
)

// follower watches the operations of a hub as a command line does: when its stream ends it begins another one where that was.
type follower struct {
	operations ichorv1alpha1connect.OperationServiceClient
	token      string  // Where it goes on.
	streams    int     // How many it has begun.
	ends       []error // How its streams ended.
	seen       chan string
}

func (f *follower) run(ctx context.Context) {
	for ctx.Err() == nil {
		stream, err := f.operations.WatchOperations(ctx, connect.NewRequest(&pb.WatchOperationsRequest{ResumeToken: f.token}))
		f.streams++
		if err == nil {
			f.read(stream)
			err = stream.Err()
		}
		f.ends = append(f.ends, err)
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	close(f.seen)
}

func (f *follower) read(stream *connect.ServerStreamForClient[pb.WatchOperationsResponse]) {
	defer stream.Close() //nolint:errcheck // It has ended.
	for stream.Receive() {
		f.token = stream.Msg().GetResumeToken()
		if changed := stream.Msg().GetChanged(); changed != nil {
			f.seen <- changed.GetRef().GetName()
		}
	}
}

// Who follows a hub sees everything, whichever of the two is killed meanwhile, the hub or its API server.
func TestFollowersOutliveTheHubAndItsAPIServer(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	h, err := harness.Start(ctx, harness.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(h.Stop()).To(Succeed()) })
	token, err := h.Token("alice", rbac.AdminsGroup)
	g.Expect(err).NotTo(HaveOccurred())
	client, err := h.HTTPClient(token, 2)
	g.Expect(err).NotTo(HaveOccurred())
	f := &follower{operations: ichorv1alpha1connect.NewOperationServiceClient(client, h.URL()), seen: make(chan string, 100)}
	following, stop := context.WithCancel(ctx)
	go f.run(following)

	for i, disturb := range []func() error{
		func() error { return nil },
		h.KillHub,
		h.StartHub,
		h.Plane.KillServer,
		h.StopHub,
		h.StartHub,
	} {
		g.Expect(disturb()).To(Succeed())
		name := fmt.Sprintf("op-%d", i)
		g.Eventually(ctx, func() error {
			return h.Client.Create(ctx, &v1alpha1.TalosOperation{
				ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: name},
				Spec:       v1alpha1.TalosOperationSpec{ClusterName: "nowhere", Kind: v1alpha1.TalosKind},
			})
		}).WithTimeout(time.Minute).Should(Succeed(), "an API server that was killed is back in a moment")
		if i == 1 || i == 4 {
			continue // There is no hub; it is seen when there is.
		}
		g.Eventually(ctx, func() string { return <-f.seen }).WithTimeout(time.Minute).Should(Equal(name))
	}
	stop()
	for range f.seen { // Until it has ended.
	}
	g.Expect(f.streams).To(BeNumerically(">=", 3), "the hub was killed once and stopped once")
	broken := 0
	for _, end := range f.ends[:len(f.ends)-1] {
		if errors.Is(end, io.ErrUnexpectedEOF) || strings.Contains(end.Error(), "GOAWAY") {
			broken++ // The connection broke off.
			continue
		}
		g.Expect(connect.CodeOf(end)).To(Equal(connect.CodeUnavailable), "a follower knows by it that it may go on: %v", end)
	}
	g.Expect(broken).To(BeNumerically("<=", 1), "only a hub that is killed breaks off")
	var list v1alpha1.TalosOperationList
	g.Expect(h.Client.List(ctx, &list)).To(Succeed())
	g.Expect(list.Items).To(HaveLen(6))
}
