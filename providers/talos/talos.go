// SPDX-License-Identifier: Apache-2.0

// Package talos reaches the Talos API of targets.
//
// Reading needs nothing but credentials. Everything that changes a machine goes through a Writer, which is handed out for a
// guard only; see package guard.
package talos

import (
	"context"
	"io"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/target"
)

// Provider hands out clients for targets. They are cheap: connections are kept and renewed behind them.
type Provider interface {
	// Reader reads the machines of a target. It fails when the credentials are missing or cannot be used.
	Reader(ctx context.Context, t target.Target) (Reader, error)

	// Writer changes the machines of a target; g is asked before every call.
	Writer(ctx context.Context, t target.Target, g guard.Func) (Writer, error)
}

// Reader reads machines. Machines are named by IP address; every call is bounded by its context.
type Reader interface {
	// Machine reads the facts of one machine.
	Machine(ctx context.Context, address string) (Machine, error)

	// Etcd reads what the etcd member of a control plane says.
	Etcd(ctx context.Context, address string) (Etcd, error)

	// Config reads the machine config of a machine, with the secrets in it.
	Config(ctx context.Context, address string) (Config, error)

	// File reads a file of a machine, of at most MaxFile bytes. It takes the role os:admin.
	File(ctx context.Context, address, path string) ([]byte, error)

	// FileTimes are when the files of a directory of a machine were last written, by name and by the clock of the machine, in whole
	// seconds. It takes the role os:admin.
	FileTimes(ctx context.Context, address, directory string) (map[string]time.Time, error)

	// EtcdSnapshot begins to read a snapshot of etcd from a control plane: a database with its SHA-256 behind it. The caller closes it.
	EtcdSnapshot(ctx context.Context, address string) (io.ReadCloser, error)

	// Services lists the services of a machine.
	Services(ctx context.Context, address string) ([]Service, error)

	// Volumes lists the volumes of a machine.
	Volumes(ctx context.Context, address string) ([]Volume, error)

	// Maintenance asks a machine that has no machine config, and so no credentials, for the UUID of its hardware. The way to it is direct:
	// no endpoint passes the call on.
	Maintenance(ctx context.Context, address string) (uuid string, err error)

	// Inspect asks a machine in maintenance mode, whose certificate has a fingerprint, who it is and what it has. The way to it is direct.
	Inspect(ctx context.Context, address, fingerprint string) (Unconfigured, error)

	// Kubernetes reads what a machine is told to run of Kubernetes. It takes the role os:admin.
	Kubernetes(ctx context.Context, address string) (Kubernetes, error)

	// Manifests reads the bootstrap manifests that a control plane renders for its cluster, as objects of Kubernetes.
	Manifests(ctx context.Context, address string) ([]map[string]any, error)

	// Members lists the machines that any endpoint knows to belong to the cluster.
	Members(ctx context.Context) ([]Member, error)
}

// Writer changes machines.
type Writer interface {
	Reader

	// PullImage pulls an image and returns its name as the machine resolved it. Repeating it is harmless.
	PullImage(ctx context.Context, address, image string) (resolved string, err error)

	// InstallImage runs the installer of a pulled image, which writes the inactive slot and reboots nothing. The exit code tells
	// how that went; err tells only that it is not known.
	InstallImage(ctx context.Context, address, image string) (exitCode int32, err error)

	// Upgrade is the one call by which Talos before 1.13 is upgraded: the machine pulls the image before it answers, and then installs it
	// and reboots by itself. It must not be repeated without a look at the boot ID and the stage.
	Upgrade(ctx context.Context, address, image string) error

	// PullKubernetesImage pulls an image of a component of Kubernetes to where the machine will look for it. Repeating it is harmless.
	PullKubernetesImage(ctx context.Context, address, image string, store ImageStore) error

	// ForfeitLeadership moves etcd's leadership off a control plane. Repeating it is harmless.
	ForfeitLeadership(ctx context.Context, address string) error

	// CheckConfig has a machine check a config that would be applied. It changes nothing, but for one thing: before Talos 1.14, a config that
	// somebody tries is kept in force from then on. Look at Config before.
	CheckConfig(ctx context.Context, address string, data []byte, mode ApplyMode) error

	// ApplyConfig has a machine take a whole config. Repeating it is harmless as long as nobody else applies another.
	ApplyConfig(ctx context.Context, address string, data []byte, mode ApplyMode) error

	// Reboot asks for a reboot and returns when that is accepted. It must not be repeated without a look at the boot ID.
	Reboot(ctx context.Context, address string, mode v1alpha1.RebootMode) error

	// Shutdown asks a machine to power off, without a drain of its own, and returns when that is accepted. It must not be repeated without
	// a look at the boot ID and the stage.
	Shutdown(ctx context.Context, address string) error

	// RestartService restarts a service and returns when that is accepted. Talos lets nobody restart others than the kubelet and those of
	// extensions.
	RestartService(ctx context.Context, address, service string) error

	// Defragment has the etcd member of a control plane give back the space that it does not use, and says how large its database was and
	// is. The member answers nothing meanwhile, which takes minutes. Repeating it is harmless.
	Defragment(ctx context.Context, address string) (before, after int64, err error)

	// DisarmAlarms takes back every alarm of etcd, those of other members too.
	DisarmAlarms(ctx context.Context, address string) error

	// LeaveEtcd has the etcd member of a control plane leave, stop and delete its data.
	LeaveEtcd(ctx context.Context, address string) error

	// RemoveEtcdMember has a control plane remove the member of another one. A member that is gone already is no error.
	RemoveEtcdMember(ctx context.Context, address string, id uint64) error

	// RecoverEtcd sends a snapshot of etcd to a control plane that has no etcd yet. Repeating it is harmless until BootstrapEtcd.
	RecoverEtcd(ctx context.Context, address string, snapshot io.Reader) error

	// BootstrapEtcd has a control plane begin an etcd of the snapshot that was sent to it, and returns when that is accepted. Only a database
	// that was copied from a disk goes without its hash. It is for one control plane of a cluster, ever: see HasEtcd for when it is called
	// again.
	BootstrapEtcd(ctx context.Context, address string, skipHashCheck bool) error

	// Provision gives a machine in maintenance mode, whose certificate has a fingerprint, its machine config, and returns when that is
	// accepted: the machine then installs Talos and boots. It must not be repeated without a look whether the machine has one by now.
	Provision(ctx context.Context, address, fingerprint string, config []byte) error

	// Reset wipes a machine and returns when that is accepted. It must not be repeated without a look at the boot ID and the stage.
	Reset(ctx context.Context, address string, reset Reset) error
}

// Stages of a machine that decisions depend on, as the resource MachineStatus names them.
const (
	StageRunning   = "running"
	StageRebooting = "rebooting"
	StageUpgrading = "upgrading"
	StageResetting = "resetting"
)

// Machine are the facts of one machine, read over one connection.
type Machine struct {
	// Version is the version of Talos that runs, with its v.
	Version string

	// BootID changes with every boot.
	BootID string

	// UUID is the identity of the hardware.
	UUID string

	// NodeName is the name of the machine's Node.
	NodeName string

	// Stage is where the machine is in its life, and Ready whether all is well there; Unmet says what is not.
	Stage string
	Ready bool
	Unmet []string

	// SchematicID is the Image Factory schematic that runs; empty if the machine does not know it.
	SchematicID string

	// Platform is the Talos platform, such as metal.
	Platform string

	// SecureBoot says whether the machine booted with Secure Boot.
	SecureBoot bool

	// UpgradePending is true from the boot into a new slot until Talos has found it good: the META upgrade key is there.
	UpgradePending bool
}

// Etcd is what one etcd member says of itself and of the others.
type Etcd struct {
	// MemberID is its own ID, Leader that of the leader, 0 if it knows none.
	MemberID, Leader uint64

	// Version is the version of etcd that it runs.
	Version string

	// RaftTerm grows with every election.
	RaftTerm uint64

	// Learner members do not vote.
	Learner bool

	// Errors are what the member reports about itself.
	Errors []string

	// Members are all members that it knows.
	Members []EtcdMember

	// Alarms are the alarms that it knows.
	Alarms []string
}

// EtcdMember is one entry of a member list.
type EtcdMember struct {
	ID       uint64
	Hostname string

	// Started members have told their client URL.
	Started bool
	Learner bool
}

// Member is a machine that belongs to a cluster, as Talos' discovery knows it.
type Member struct {
	Hostname     string
	Addresses    []string
	ControlPlane bool
}
