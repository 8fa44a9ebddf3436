// SPDX-License-Identifier: Apache-2.0

// Package storage moves the replicas of volumes off machines that are about to go away.
//
// It speaks to storage operators by annotations of Nodes, and to those only that announce themselves so:
//
//   - The operator writes ichor.maesh.dev/storage-replicas on every Node that holds storage: how many replicas are there.
//   - The hub writes ichor.maesh.dev/storage-evacuated-by with the name of the operation. From then on the operator puts no replica on
//     the Node and moves those that are there to others, and the count goes down to 0.
//   - The hub removes its annotation when the machine is back, or does not go away after all. The operator may use the Node again.
//
// A Node without the first annotation has no storage that this package knows of, and nothing is asked of it.
package storage

import (
	"context"
	"fmt"
	"strconv"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/target"
)

// State is what the storage of a target has on one Node.
type State struct {
	// Replicas is how many replicas are on the Node.
	Replicas int

	// EvacuatedBy is the operation that had the replicas moved off; empty if none did, and the storage uses the Node.
	EvacuatedBy string
}

// Annotated is the storage of targets whose operators keep to the annotations.
type Annotated struct{ kube kube.Provider }

// New returns the storage of targets that k reaches.
func New(k kube.Provider) *Annotated { return &Annotated{kube: k} }

// Look says what is on a Node that was just read.
func (a *Annotated) Look(_ context.Context, _ target.Target, node kube.Node) (State, error) {
	text, ok := node.Storage[v1alpha1.StorageReplicasAnnotation]
	state := State{EvacuatedBy: node.Storage[v1alpha1.StorageEvacuatedByAnnotation]}
	if !ok {
		return state, nil
	}
	replicas, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return State{}, fmt.Errorf("annotation %s of Node %s is %q, and must be the number of its replicas", v1alpha1.StorageReplicasAnnotation, node.Name, text)
	}
	state.Replicas = int(replicas)
	return state, nil
}

// Evacuate asks for the replicas to be moved off a Node, once, and says whether they are: a MovingError means that they are being moved,
// and that it is worth asking again. What somebody else evacuates already stays theirs.
func (a *Annotated) Evacuate(ctx context.Context, t target.Target, g guard.Func, node, owner string) error {
	writer, err := a.kube.Writer(ctx, t, g)
	if err != nil {
		return err
	}
	err = writer.Annotate(ctx, node, v1alpha1.StorageEvacuatedByAnnotation, func(now string) string {
		if now == "" {
			return owner
		}
		return now
	})
	if err != nil {
		return err
	}
	found, err := writer.Node(ctx, node)
	if err != nil || found == nil {
		return err
	}
	switch state, err := a.Look(ctx, t, *found); {
	case err != nil:
		return err
	case state.Replicas > 0:
		return &MovingError{Node: node, Replicas: state.Replicas}
	}
	return nil
}

// MovingError means that replicas are still on a Node which is being evacuated.
type MovingError struct {
	Node     string
	Replicas int
}

// Error says how many are left.
func (e *MovingError) Error() string {
	return fmt.Sprintf("waiting for the storage to move %d replicas off Node %s", e.Replicas, e.Node)
}

// Restore lets the storage use a Node again if owner evacuated it, and leaves it as it is otherwise.
func (a *Annotated) Restore(ctx context.Context, t target.Target, g guard.Func, node, owner string) error {
	writer, err := a.kube.Writer(ctx, t, g)
	if err != nil {
		return err
	}
	return writer.Annotate(ctx, node, v1alpha1.StorageEvacuatedByAnnotation, func(now string) string {
		if now == owner {
			return ""
		}
		return now
	})
}
