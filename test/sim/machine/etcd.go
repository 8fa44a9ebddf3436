// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"

	"ichor.maesh.dev/hub/test/sim/etcd"
)

// Etcd is the etcd of a machine's cluster, in memory or made of real processes. Members go by the names of their machines: the ID of a
// member changes when its machine joins anew.
type Etcd interface {
	// Add tells of a machine whose member runs when the simulation begins.
	Add(name, address string)
	// Know tells of a machine that may join one day, and has nothing of etcd.
	Know(name, address string)
	// Join starts a machine's member and returns when it belongs to the cluster, or when the context ends.
	Join(ctx context.Context, name string) error
	// Down takes a machine's member away and leaves its data.
	Down(name string)
	// Wipe deletes what is on a machine's disk of etcd: its data and the snapshot that was uploaded. Its member is down.
	Wipe(name string)
	// Preparing says that a machine's etcd has no data and waits for others to join, or to be bootstrapped.
	Preparing(name string) bool
	// Recover keeps a snapshot for the bootstrap that begins with it.
	Recover(name string, snapshot []byte) error
	// Bootstrap has a machine whose etcd waits begin a cluster of its own, and returns before that has begun.
	Bootstrap(name string, fromSnapshot, skipHashCheck bool) error
	// MemberID is the ID of a machine's member, zero while it has none.
	MemberID(name string) uint64

	// Healthy says whether the cluster serves, WaitHealthy waits until it does.
	Healthy() bool
	WaitHealthy(ctx context.Context) error
	// Leader is the name of the leader, or nothing while there is none.
	Leader() string
	// ValidateForUpgrade is Talos's check before an upgrade of a control plane.
	ValidateForUpgrade(ctx context.Context) error

	// What a member answers, each by the name of its machine.
	Members(ctx context.Context, name string) ([]etcd.Member, error)
	Status(ctx context.Context, name string) (etcd.Status, error)
	Alarms(ctx context.Context, name string) ([]etcd.Alarm, error)
	Snapshot(ctx context.Context, name string) (data []byte, revision int64, err error)

	// What a member is asked to do. Disarm returns the alarms that it took back, Forfeit the name of the next leader.
	Disarm(ctx context.Context, name string) ([]etcd.Alarm, error)
	Forfeit(ctx context.Context, name string) (string, error)
	Defragment(ctx context.Context, name string) error
	Remove(ctx context.Context, by string, id uint64) error
}
