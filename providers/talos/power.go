// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"errors"
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// StageShuttingDown is the stage of a machine that is about to power off.
const StageShuttingDown = "shutting down"

// Shutdown asks a machine to power off and returns when that is accepted. Talos does not drain it: it would pass over disruption budgets and
// give up after a while, so whoever wants a machine drained does that before.
func (c *connection) Shutdown(ctx context.Context, address string) error {
	if err := c.client.Shutdown(c.guarded(ctx, address), client.WithShutdownForce(true)); err != nil {
		return fmt.Errorf("shutting down %s: %w", address, err)
	}
	return nil
}

// Silent says of the error of a read whether nobody answered, as of a machine that is off. Whatever was answered, a refusal or a certificate
// that is of no use, proves that something is there.
func Silent(err error) bool {
	switch {
	case err == nil, Rejected(err):
		return false
	case errors.Is(err, context.DeadlineExceeded):
		return true
	}
	switch status.Code(err) { //nolint:exhaustive // The others are answers.
	case codes.Unavailable, codes.DeadlineExceeded:
		return Trouble(err) == noAnswer
	}
	return false
}
