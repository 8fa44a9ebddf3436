// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"ichor.maesh.dev/hub/hub/auth"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
)

const (
	getProcedure   = ichorv1alpha1connect.OperationServiceGetOperationProcedure
	watchProcedure = ichorv1alpha1connect.OperationServiceWatchOperationsProcedure
)

func TestCallsAreCountedAndLogged(t *testing.T) {
	g := NewWithT(t)
	var log bytes.Buffer
	refuse := false
	services := &fake{watch: untilTheEnd, get: func(context.Context) error {
		if refuse {
			return connect.NewError(connect.CodeNotFound, errors.New("there is none"))
		}
		return nil
	}}
	guard := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(auth.With(r.Context(), auth.Caller{Name: "alice"})))
		})
	}
	w := run(t, Options{Services: services, Guard: guard, Log: logr.FromSlogHandler(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}, bounds{})
	operations := w.operations(t)
	count := func(code string) float64 { return testutil.ToFloat64(requests.WithLabelValues(getProcedure, code)) }
	ok, notFound := count("ok"), count("not_found")

	_, err := operations.GetOperation(t.Context(), connect.NewRequest(&pb.GetOperationRequest{}))
	g.Expect(err).NotTo(HaveOccurred())
	refuse = true
	_, err = operations.GetOperation(t.Context(), connect.NewRequest(&pb.GetOperationRequest{}))
	g.Expect(err).To(HaveOccurred())
	g.Expect(count("ok") - ok).To(Equal(1.0))
	g.Expect(count("not_found") - notFound).To(Equal(1.0))

	open := func() float64 { return testutil.ToFloat64(openStreams.WithLabelValues(watchProcedure)) }
	before := open()
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := operations.WatchOperations(ctx, connect.NewRequest(&pb.WatchOperationsRequest{}))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(stream.Receive()).To(BeTrue())
	g.Expect(open()).To(Equal(before + 1))
	cancel()
	g.Eventually(open).WithTimeout(soon).Should(Equal(before))
	g.Expect(w.stop()).To(Succeed())
	g.Expect(log.String()).To(ContainSubstring("procedure=" + getProcedure + " code=not_found"))
	g.Expect(log.String()).To(ContainSubstring("user=alice"))
}

// Whom the guard turns away the interceptors never see.
func TestThoseTurnedAwayAreCounted(t *testing.T) {
	writer := connect.NewErrorWriter()
	guard := func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = writer.Write(w, r, connect.NewError(connect.CodeUnauthenticated, errors.New("who are you")))
		})
	}
	w := run(t, Options{Guard: guard}, bounds{})
	for name, options := range map[string][]connect.ClientOption{
		"Connect":  nil,
		"gRPC":     {connect.WithGRPC()},
		"gRPC-Web": {connect.WithGRPCWeb()},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			before := testutil.ToFloat64(requests.WithLabelValues(getProcedure, "unauthenticated"))
			_, err := w.operations(t, options...).GetOperation(t.Context(), connect.NewRequest(&pb.GetOperationRequest{}))
			g.Expect(connect.CodeOf(err)).To(Equal(connect.CodeUnauthenticated))
			g.Expect(testutil.ToFloat64(requests.WithLabelValues(getProcedure, "unauthenticated")) - before).To(Equal(1.0))
		})
	}
	g := NewWithT(t)
	series := testutil.CollectAndCount(requests)
	w.get(t, "/ichor.v1alpha1.OperationService/NoSuchThing")
	w.get(t, "/ichor.v1alpha1.OperationService/GetOperation/more")
	g.Expect(testutil.CollectAndCount(requests)).To(Equal(series), "what nobody serves makes no series")
}
