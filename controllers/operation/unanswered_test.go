// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ichor.maesh.dev/hub/providers/guard"
)

// Kinds that may go on without the record do so where the API server gives no answer: it is gone, or has no quorum of etcd behind it.
// What it does answer counts.
func TestUnanswered(t *testing.T) {
	resource := schema.GroupResource{Resource: "configmaps"}
	for name, row := range map[string]struct {
		err  error
		want bool
	}{
		"nobody is there":       {&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}, true},
		"etcd has no quorum":    {apierrors.NewInternalError(errors.New("etcdserver: request timed out")), true},
		"not in time":           {apierrors.NewTimeoutError("request did not complete", 1), true},
		"not ready":             {apierrors.NewServiceUnavailable("etcdserver: no leader"), true},
		"may not":               {apierrors.NewForbidden(resource, "ichor-hub", errors.New("x")), false},
		"somebody was faster":   {apierrors.NewConflict(resource, "ichor-hub", errors.New("x")), false},
		"another operation's":   {fmt.Errorf("%w: x", errOvertaken), false},
		"another process leads": {fmt.Errorf("x: %w", guard.ErrNotAllowed), false},
		"nobody knows who leads": {
			fmt.Errorf("%w: %w", guard.ErrUndecided, apierrors.NewInternalError(errors.New("etcdserver: leader changed"))), false,
		},
	} {
		t.Run(name, func(t *testing.T) { NewWithT(t).Expect(unanswered(row.err)).To(Equal(row.want)) })
	}
}
