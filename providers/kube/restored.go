// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/providers/guard"
)

// Stale is what a target has that came back with an etcd of an earlier time, and stands for nothing any more.
type Stale struct {
	// Nodes are Nodes without a machine. One that is Ready by now stays: somebody is there.
	Nodes []string

	// RenewedBefore is the time since which whoever lives has renewed its Lease.
	RenewedBefore time.Time
}

// Removed is how much was deleted.
type Removed struct {
	Nodes, Leases, Attachments int
}

// String says it for people; nothing if nothing was deleted.
func (r Removed) String() string {
	var parts []string
	for _, part := range []struct {
		count int
		what  string
	}{{r.Nodes, "Nodes"}, {r.Leases, "Leases"}, {r.Attachments, "VolumeAttachments"}} {
		if part.count > 0 {
			parts = append(parts, fmt.Sprintf("%d stale %s", part.count, part.what))
		}
	}
	return strings.Join(parts, ", ")
}

// Revision is the revision of etcd, as a list tells that is read from etcd now.
func (c *connection) Revision(ctx context.Context) (int64, error) {
	list, err := c.clients.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("reading the revision of etcd: %w", err)
	}
	revision, err := strconv.ParseInt(list.ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading the revision of etcd: the API server calls it %q", list.ResourceVersion)
	}
	return revision, nil
}

func (c *connection) RemoveStale(ctx context.Context, stale Stale) (removed Removed, err error) {
	ctx = guard.With(ctx, c.guard)
	for _, remove := range []struct {
		from  func(context.Context, Stale) (int, error)
		count *int
	}{{c.removeNodes, &removed.Nodes}, {c.removeLeases, &removed.Leases}, {c.removeAttachments, &removed.Attachments}} {
		if *remove.count, err = remove.from(ctx, stale); err != nil {
			return removed, err
		}
	}
	return removed, nil
}

func (c *connection) removeNodes(ctx context.Context, stale Stale) (count int, err error) {
	for _, name := range stale.Nodes {
		found, err := c.clients.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return count, fmt.Errorf("reading node %s: %w", name, err)
		case nodeFrom(found).Ready:
			continue
		}
		err = ignoreChanged(c.clients.CoreV1().Nodes().Delete(ctx, name, asRead(found)))
		if err != nil {
			return count, fmt.Errorf("deleting node %s: %w", name, err)
		}
		count++
	}
	return count, nil
}

// removeLeases leaves no holder behind that is of the past: whoever waits for a Lease that nobody renews waits for its whole duration, and some
// Leases are given back by their holders alone.
func (c *connection) removeLeases(ctx context.Context, stale Stale) (count int, err error) {
	list, err := c.clients.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("listing leases: %w", err)
	}
	for i := range list.Items {
		lease := &list.Items[i]
		if renewed(lease).After(stale.RenewedBefore) {
			continue
		}
		err := ignoreChanged(c.clients.CoordinationV1().Leases(lease.Namespace).Delete(ctx, lease.Name, asRead(lease)))
		if err != nil {
			return count, fmt.Errorf("deleting lease %s/%s: %w", lease.Namespace, lease.Name, err)
		}
		count++
	}
	return count, nil
}

// renewed is the last sign of life of the holder of a Lease.
func renewed(lease *coordinationv1.Lease) time.Time {
	last := lease.CreationTimestamp.Time
	for _, at := range []*metav1.MicroTime{lease.Spec.AcquireTime, lease.Spec.RenewTime} {
		if at != nil && at.After(last) {
			last = at.Time
		}
	}
	return last
}

// removeAttachments deletes the VolumeAttachments to Nodes that are not there.
func (c *connection) removeAttachments(ctx context.Context, _ Stale) (count int, err error) {
	list, err := c.clients.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, absent(err, "volume attachments")
	}
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return 0, err
	}
	for i := range list.Items {
		attachment := &list.Items[i]
		if slices.ContainsFunc(nodes, func(n Node) bool { return n.Name == attachment.Spec.NodeName }) {
			continue
		}
		err := ignoreChanged(c.clients.StorageV1().VolumeAttachments().Delete(ctx, attachment.Name, asRead(attachment)))
		if err != nil {
			return count, fmt.Errorf("deleting volume attachment %s: %w", attachment.Name, err)
		}
		count++
	}
	return count, nil
}

// asRead deletes an object only if it is still as it was read.
func asRead(object metav1.Object) metav1.DeleteOptions {
	uid, version := object.GetUID(), object.GetResourceVersion()
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}}
}

// ignoreChanged takes for done what somebody else has deleted or, which shows that it lives, written meanwhile.
func ignoreChanged(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
