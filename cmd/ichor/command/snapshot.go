// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

func newSnapshotCommand(a *app) *cobra.Command {
	return group("snapshot", "Take, list and delete snapshots of etcd", []string{"snapshots"},
		newSnapshotTakeCommand(a), newSnapshotListCommand(a), newSnapshotGetCommand(a), newSnapshotDeleteCommand(a))
}

func newSnapshotTakeCommand(a *app) *cobra.Command {
	var name string
	var wait bool
	cmd := &cobra.Command{
		Use:   "take",
		Short: "Take a snapshot of the etcd of a cluster and store it",
		Long: `Take a snapshot of the etcd of a cluster and store it where spec.etcdBackup of its TalosCluster says.

The hub takes it, and tries again while that fails. With --follow the command waits for it. Asking twice with the same --name is asking once.`,
		Example: `  ichor snapshot take --cluster prod-1 --follow
  ichor snapshot take --cluster prod-1 --name before-migration`,
		Args: cobra.NoArgs,
		RunE: a.connected(func(cmd *cobra.Command, _ []string) error {
			cluster, err := a.clusterRef()
			if err != nil {
				return err
			}
			response, err := call(cmd.Context(), a, a.connection.snapshots.CreateSnapshot, &pb.CreateSnapshotRequest{Cluster: cluster, Name: name})
			if err != nil {
				return fmt.Errorf("taking a snapshot of cluster %s: %w", cluster.GetName(), err)
			}
			snapshot := response.GetSnapshot()
			if wait {
				return a.awaitSnapshot(cmd.Context(), snapshot)
			}
			text := "Snapshot %s is asked for; see how it goes with: ichor snapshot get %[1]s"
			if !response.GetChanged() {
				text = "Snapshot %s was asked for before; see how it goes with: ichor snapshot get %[1]s"
			}
			return a.did(a.item(snapshot, snapshotResource, snapshot.GetRef()), text, a.named(snapshot.GetRef()))
		}),
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the snapshot (default: one that tells cluster and time)")
	cmd.Flags().BoolVar(&wait, "follow", false, "wait until it is stored")
	return cmd
}

// snapshotPause is the pause between two looks at a snapshot that is waited for.
const snapshotPause = 500 * time.Millisecond

// awaitSnapshot waits until a snapshot is stored, and says what keeps it.
func (a *app) awaitSnapshot(ctx context.Context, snapshot *pb.Snapshot) error {
	waiting, cancel := a.patience(ctx)
	defer cancel()
	a.follows = true
	ticker := time.NewTicker(snapshotPause)
	defer ticker.Stop()
	said := ""
	for snapshot.GetContents() == nil {
		if words := snapshotTrouble(snapshot); words != said {
			said = words
			a.remark("Snapshot %s: %s", a.named(snapshot.GetRef()), cmp.Or(words, "it is being taken"))
		}
		select {
		case <-ticker.C:
		case <-waiting.Done():
			return a.gaveUp(ctx, snapshot)
		}
		response, err := call(waiting, a, a.connection.snapshots.GetSnapshot, &pb.GetSnapshotRequest{Ref: snapshot.GetRef()})
		switch {
		case waiting.Err() != nil:
			return a.gaveUp(ctx, snapshot)
		case err != nil:
			return fmt.Errorf("waiting for snapshot %s: %w", a.named(snapshot.GetRef()), err)
		}
		snapshot = response.GetSnapshot()
	}
	c := snapshot.GetContents()
	return a.did(a.item(snapshot, snapshotResource, snapshot.GetRef()), "Snapshot %s is stored: %s, revision %d of etcd.",
		a.named(snapshot.GetRef()), sizeOf(c.GetSizeBytes()), c.GetRevision())
}

// gaveUp says that a snapshot is not waited for any more.
func (a *app) gaveUp(ctx context.Context, snapshot *pb.Snapshot) error {
	if ctx.Err() != nil {
		return &codedError{errors.New("interrupted"), exitInterrupted}
	}
	return &codedError{fmt.Errorf("snapshot %s is not stored yet: the hub goes on trying", a.named(snapshot.GetRef())), exitStillRuns}
}

// snapshotTrouble is what the last attempt failed of; nothing if none did.
func snapshotTrouble(snapshot *pb.Snapshot) string {
	for _, c := range snapshot.GetConditions() {
		if c.GetType() == v1alpha1.SnapshotReadyCondition && c.GetStatus() == pb.ConditionStatus_CONDITION_STATUS_FALSE {
			return c.GetMessage()
		}
	}
	return ""
}

func newSnapshotListCommand(a *app) *cobra.Command {
	var all bool
	request := &pb.ListSnapshotsRequest{}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List snapshots, of one cluster with --cluster",
		Args:    cobra.NoArgs,
		RunE: a.connected(func(cmd *cobra.Command, _ []string) error {
			var err error
			if request.Namespaces, request.Clusters, err = a.scope(all); err != nil {
				return err
			}
			list, err := a.listSnapshots(cmd.Context(), request)
			if err != nil {
				return fmt.Errorf("listing snapshots: %w", err)
			}
			items := make([]item, len(list.GetSnapshots()))
			for i, snapshot := range list.GetSnapshots() {
				items[i] = a.item(snapshot, snapshotResource, snapshot.GetRef())
			}
			if err := a.printList(list, items, "No snapshots.", func() table { return a.snapshotTable(list.GetSnapshots(), all) }); err != nil {
				return err
			}
			return a.partial(list.GetFailures())
		}),
	}
	addAllNamespaces(cmd, &all)
	cmd.Flags().StringVar(&request.OrderBy, "sort-by", "", `field and direction, such as "taken_time desc": create_time, taken_time, name, cluster`)
	return cmd
}

func (a *app) listSnapshots(ctx context.Context, request *pb.ListSnapshotsRequest) (*pb.ListSnapshotsResponse, error) {
	all := &pb.ListSnapshotsResponse{}
	err := pages(func(page *pb.Page) (*pb.ListSnapshotsResponse, error) {
		request.Page = page
		return call(ctx, a, a.connection.snapshots.ListSnapshots, request)
	}, func(response *pb.ListSnapshotsResponse) {
		all.Snapshots = append(all.Snapshots, response.GetSnapshots()...)
		all.TotalSize, all.Failures = response.GetTotalSize(), response.GetFailures()
	})
	return all, err
}

func (a *app) snapshotTable(snapshots []*pb.Snapshot, all bool) table {
	t := table{columns: columns("NAME", "CLUSTER", "REASON", "READY", "TAKEN", "SIZE", "REVISION", "TALOS", "KUBERNETES", "NOTES", "+ETCD", "+MACHINE", "+KEY", "+REQUESTER")}
	namespaces := make([]string, len(snapshots))
	for i, s := range snapshots {
		c := s.GetContents()
		namespaces[i] = s.GetRef().GetNamespace()
		taken, size, revision := "", "", ""
		if c != nil {
			taken, size, revision = a.age(c.GetTakenTime())+" ago", sizeOf(c.GetSizeBytes()), strconv.FormatInt(c.GetRevision(), 10)
		}
		t.rows = append(t.rows, []string{
			s.GetRef().GetName(), s.GetCluster().GetName(), word("SNAPSHOT_REASON_", s.GetReason()), statusOf(s.GetConditions(), v1alpha1.SnapshotReadyCondition),
			taken, size, revision, c.GetTalosVersion(), c.GetKubernetesVersion(), snapshotNotes(s), c.GetEtcdVersion(), c.GetMachine(), c.GetKey(), s.GetRequester(),
		})
	}
	return withNamespace(t, all, namespaces)
}

func snapshotNotes(s *pb.Snapshot) string {
	switch trouble := snapshotTrouble(s); {
	case s.GetDeleting():
		return "deleting"
	case trouble != "":
		return trouble
	case s.GetContents().GetRecipient() != "":
		return "encrypted"
	}
	return ""
}

// sizeOf is a size for people.
func sizeOf(bytes int64) string {
	const step = 1024
	value, units := float64(bytes), []string{"B", "KiB", "MiB", "GiB"}
	i := 0
	for ; value >= step && i < len(units)-1; i++ {
		value /= step
	}
	if i == 0 {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %s", value, units[i])
}

func newSnapshotGetCommand(a *app) *cobra.Command {
	return a.onSnapshot("get SNAPSHOT", "Show a snapshot: where it is stored, and what a restore is judged by", func(ctx context.Context, ref *pb.Reference) error {
		response, err := call(ctx, a, a.connection.snapshots.GetSnapshot, &pb.GetSnapshotRequest{Ref: ref})
		if err != nil {
			return fmt.Errorf("reading snapshot %s: %w", a.named(ref), err)
		}
		snapshot := response.GetSnapshot()
		if !a.forPeople() {
			return a.printItem(a.item(snapshot, snapshotResource, snapshot.GetRef()))
		}
		if err := a.printTable(a.snapshotTable([]*pb.Snapshot{snapshot}, false)); err != nil {
			return err
		}
		fmt.Fprintln(a.Out)
		if err := a.printTable(factTable(snapshot)); err != nil {
			return err
		}
		fmt.Fprintln(a.Out)
		return a.printTable(conditionTable(snapshot.GetConditions()))
	})
}

// factTable has all that a restore is judged by.
func factTable(s *pb.Snapshot) table {
	t := table{columns: columns("FACT", "VALUE")}
	c := s.GetContents()
	if c == nil {
		return t
	}
	for _, fact := range [][]string{
		{"bucket", c.GetBucketUrl()}, {"key", c.GetKey()}, {"stored bytes", strconv.FormatInt(c.GetStoredBytes(), 10)}, {"stored SHA-256", c.GetStoredSha256()},
		{"SHA-256", c.GetSha256()}, {"encrypted for", c.GetRecipient()}, {"machine", c.GetMachine()}, {"members", strconv.Itoa(int(c.GetMembers()))},
		{"etcd", c.GetEtcdVersion()}, {"Kubernetes CA", c.GetKeys().GetKubernetesCa()}, {"service-account key", c.GetKeys().GetServiceAccount()},
	} {
		if fact[1] != "" {
			t.rows = append(t.rows, fact)
		}
	}
	for _, key := range c.GetKeys().GetEncryption() {
		t.rows = append(t.rows, []string{key.GetProvider() + " key", key.GetFingerprint()})
	}
	return t
}

// onSnapshot is a command about the snapshot that its argument names.
func (a *app) onSnapshot(use, short string, run func(context.Context, *pb.Reference) error) *cobra.Command {
	return &cobra.Command{
		Use:               use,
		Short:             short,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete(a.snapshotNames),
		RunE: a.connected(func(cmd *cobra.Command, args []string) error {
			ref, err := snapshotResource.parse(args[0], a.namespace)
			if err != nil {
				return err
			}
			return run(cmd.Context(), ref)
		}),
	}
}

func newSnapshotDeleteCommand(a *app) *cobra.Command {
	var retain, yes bool
	cmd := a.onSnapshot("delete SNAPSHOT", "Delete a snapshot and what is stored of it", func(ctx context.Context, ref *pb.Reference) error {
		question := "Delete snapshot " + a.named(ref) + " and what is stored of it?"
		if retain {
			question = "Delete snapshot " + a.named(ref) + " and leave what is stored?"
		}
		if err := a.ask(ctx, question, yes); err != nil {
			return err
		}
		response, err := call(ctx, a, a.connection.snapshots.DeleteSnapshot, &pb.DeleteSnapshotRequest{Ref: ref, Retain: retain})
		if err != nil {
			return fmt.Errorf("deleting snapshot %s: %w", a.named(ref), err)
		}
		if response.GetGone() {
			return a.did(item{response, snapshotResource.kind + "/" + a.named(ref)}, "Snapshot %s is deleted.", a.named(ref))
		}
		return a.did(item{response, snapshotResource.kind + "/" + a.named(ref)}, "Snapshot %s goes when what is stored of it is deleted.", a.named(ref))
	})
	cmd.Flags().BoolVar(&retain, "retain", false, "leave what is stored where it is")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (a *app) snapshotNames(ctx context.Context, _ string) (names []string, err error) {
	err = a.asked(func() error {
		namespaces, clusters, err := a.scope(false)
		if err != nil {
			return err
		}
		response, err := call(ctx, a, a.connection.snapshots.ListSnapshots, &pb.ListSnapshotsRequest{
			Namespaces: namespaces, Clusters: clusters, Page: &pb.Page{Size: mostNames},
		})
		for _, snapshot := range response.GetSnapshots() {
			names = append(names, snapshot.GetRef().GetName())
		}
		return err
	})
	return names, err
}
