// SPDX-License-Identifier: Apache-2.0

// Package routes puts the services of a hub under their paths. The hub serves them to the network, and the command line to itself.
package routes

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"runtime/debug"

	"connectrpc.com/connect"
	"github.com/go-logr/logr"

	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
)

const (
	// ImportLimit is how large a request with credentials of a cluster may be, in bytes.
	ImportLimit = 4 << 20

	// Limit is how large any other request may be.
	Limit = 1 << 20

	// compressFrom is how large an answer is that is worth compressing.
	compressFrom = 1 << 10
)

// errBroken is what callers hear of a panic. What it was is in the log.
var errBroken = errors.New("the hub could not answer because of a defect in it, which its log shows")

// Services is what answers for a hub.
type Services interface {
	ichorv1alpha1connect.OperationServiceHandler
	ichorv1alpha1connect.ClusterServiceHandler
	ichorv1alpha1connect.HubServiceHandler
	ichorv1alpha1connect.AuditServiceHandler
	ichorv1alpha1connect.SnapshotServiceHandler
}

// Names are the names of the services.
func Names() []string {
	return []string{
		ichorv1alpha1connect.OperationServiceName,
		ichorv1alpha1connect.ClusterServiceName,
		ichorv1alpha1connect.HubServiceName,
		ichorv1alpha1connect.AuditServiceName,
		ichorv1alpha1connect.SnapshotServiceName,
	}
}

func newDecompressor() connect.Decompressor { return &gzip.Reader{} }

// newCompressor is a fast one: a watch compresses for each of its watchers, and lists are so repetitive that little is lost.
func newCompressor() connect.Compressor {
	w, err := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
	if err != nil {
		panic(err) // There is such a level.
	}
	return w
}

// Mount adds the services to a mux. Options are applied in their order, the first is the outermost; within them a panic becomes an error.
func Mount(mux *http.ServeMux, services Services, log logr.Logger, options ...connect.HandlerOption) {
	all := []connect.HandlerOption{
		connect.WithConditionalHandlerOptions(limit),
		connect.WithCodec(strictJSON{"json"}),
		connect.WithCodec(strictJSON{"json; charset=utf-8"}),
		connect.WithCompressMinBytes(compressFrom),
		connect.WithCompression("gzip", newDecompressor, newCompressor),
		connect.WithHandlerOptions(options...),
		connect.WithRecover(recovered(log)),
	}
	mux.Handle(ichorv1alpha1connect.NewOperationServiceHandler(services, all...))
	mux.Handle(ichorv1alpha1connect.NewClusterServiceHandler(services, all...))
	mux.Handle(ichorv1alpha1connect.NewHubServiceHandler(services, all...))
	mux.Handle(ichorv1alpha1connect.NewAuditServiceHandler(services, all...))
	mux.Handle(ichorv1alpha1connect.NewSnapshotServiceHandler(services, all...))
}

// limit bounds what is read of a request.
func limit(spec connect.Spec) []connect.HandlerOption {
	if spec.Procedure == ichorv1alpha1connect.ClusterServiceImportClusterProcedure {
		return []connect.HandlerOption{connect.WithReadMaxBytes(ImportLimit)}
	}
	return []connect.HandlerOption{connect.WithReadMaxBytes(Limit)}
}

// recovered logs a panic, and says to the caller no more than that there was one.
func recovered(log logr.Logger) func(context.Context, connect.Spec, http.Header, any) error {
	return func(_ context.Context, spec connect.Spec, _ http.Header, panicked any) error {
		log.Error(errBroken, "A handler panicked", "procedure", spec.Procedure, "panic", panicked, "stack", string(debug.Stack()))
		return connect.NewError(connect.CodeInternal, errBroken)
	}
}
