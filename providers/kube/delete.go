// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/providers/guard"
)

func (c *connection) DeleteNode(ctx context.Context, name, uuid string) (deleted bool, err error) {
	found, err := c.clients.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading node %s: %w", name, err)
	}
	if own := nodeFrom(found); own.UUID != "" && !strings.EqualFold(own.UUID, uuid) {
		return false, nil
	}
	err = c.clients.CoreV1().Nodes().Delete(guard.With(ctx, c.guard), name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &found.UID}})
	switch {
	case ignoreChanged(err) != nil:
		return false, fmt.Errorf("deleting node %s: %w", name, err)
	default:
		return err == nil, nil // It is gone, or another one by now.
	}
}
