// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"
)

var errNotSynced = errors.New("the hub has not read everything yet; ask again in a moment")

// invalidField says that a request asks for what cannot be.
func invalidField(field, value, allowed string) error {
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%s %q: %s", field, value, allowed))
}

// readError is an error as a handler returns it.
func readError(err error) error {
	var ready *connect.Error
	if errors.As(err, &ready) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return connect.NewError(connect.CodeUnavailable, err)
}
