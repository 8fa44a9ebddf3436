// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (s *server) Shutdown(ctx context.Context, request *machineapi.ShutdownRequest) (*machineapi.ShutdownResponse, error) {
	s.note(ctx, fmt.Sprintf("Shutdown force=%t", request.GetForce()))
	return &machineapi.ShutdownResponse{Messages: []*machineapi.Shutdown{{ActorId: "a"}}}, nil
}

// Talos's own drain is never asked for: it would keep to no disruption budget, and fail without the Kubernetes API.
func TestShutdownGoesWithoutADrain(t *testing.T) {
	g := NewWithT(t)
	s, c := serve(t)
	g.Expect((&connection{client: c, guard: allowed}).Shutdown(t.Context(), "10.0.0.1")).To(Succeed())
	g.Expect(s.calls).To(Equal([]string{"Shutdown force=true"}))
	g.Expect(s.nodes).To(Equal([]string{"10.0.0.1"}))
}

// Nobody calls a machine off that answers, whatever it answers.
func TestSilent(t *testing.T) {
	for name, row := range map[string]struct {
		err  error
		want bool
	}{
		"it answers":         {nil, false},
		"nobody answers":     {status.Error(codes.Unavailable, "connection refused"), true},
		"not in time":        {status.Error(codes.DeadlineExceeded, "x"), true},
		"our own patience":   {fmt.Errorf("x: %w", context.DeadlineExceeded), true},
		"refused":            {status.Error(codes.PermissionDenied, "x"), false},
		"another authority":  {status.Error(codes.Unavailable, "tls: failed to verify certificate: x509: certificate signed by unknown authority"), false},
		"expired":            {status.Error(codes.Unavailable, "remote error: tls: expired certificate"), false},
		"etcd does not work": {status.Error(codes.Unavailable, "etcdserver: no leader"), false},
		"we ended it":        {status.Error(codes.Canceled, "x"), false},
		"no credentials":     {errors.New("Secret is missing"), false},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(Silent(row.err)).To(Equal(row.want))
		})
	}
}
