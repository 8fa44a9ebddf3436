// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"errors"
	"io"
	"strings"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/target"
)

// Snapshots stores snapshots of etcd for operations.
type Snapshots interface {
	// Take stores a snapshot of the target's etcd under a name, and returns once it is stored and its hash is proved. One that is stored
	// under that name already is left as it is: repeating the call is harmless. g is asked before anything is changed or stored.
	Take(ctx context.Context, t target.Target, g guard.Func, name string) error
}

// StoredSnapshots gives back what is stored of snapshots.
type StoredSnapshots interface {
	// Find reads the object of a snapshot that is stored.
	Find(ctx context.Context, t target.Target, name string) (*v1alpha1.EtcdSnapshot, error)

	// Check reads what is stored to its end, and fails unless that is the whole of what was taken.
	Check(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot) error

	// Read hands the snapshot, decrypted, to take. Where what comes by is not what was stored, take reads an error and never the end.
	Read(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot, take func(io.Reader) error) error
}

// ErrUnusable means that a snapshot cannot be restored, and that trying once more does not help.
var ErrUnusable = errors.New("the snapshot cannot be used")

// SnapshotName is the name of the snapshot that an operation takes: it takes one, however often it is begun with.
func SnapshotName(scope Scope) string {
	_, name, _ := strings.Cut(scope.Owner, "/")
	return name + "-" + scope.OperationID[:min(len(scope.OperationID), shortID)]
}

// NextSnapshot decides for a stage that takes a snapshot. Whether one is stored is what the call answers: there is nothing to look at.
func NextSnapshot(unit Unit) Action {
	switch {
	case unit.Status.Step == "":
		return Action{Verdict: Call, Step: v1alpha1.SnapshottingStep}
	case unit.Failed():
		return FailStep(unit, "")
	}
	return Action{Verdict: Done}
}

// SettleSnapshot leaves a snapshot that is being taken to the hub: it disturbs nothing, and is found stored when the operation goes on.
func SettleSnapshot(unit Unit) Action {
	if unit.Status.Outcome != nil && !unit.Failed() {
		return Action{Verdict: Done}
	}
	return Action{Verdict: Park}
}

// shortID is how much of the ID of an operation tells it from another one of its name.
const shortID = 8

// ErrNotStored means that a snapshot is not stored, and that trying once more does not help.
var ErrNotStored = errors.New("no snapshot of etcd is stored")
