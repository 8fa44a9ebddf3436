// SPDX-License-Identifier: Apache-2.0

package service

import (
	"testing"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

func storedCluster(backup *v1alpha1.EtcdBackupSpec) *v1alpha1.TalosCluster {
	cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: c1.Namespace, Name: c1.Name}}
	cluster.Spec.EtcdBackup = backup
	return cluster
}

func snapshotOf(name, cluster string) *v1alpha1.EtcdSnapshot {
	return &v1alpha1.EtcdSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: c1.Namespace, Name: name, UID: "u1"},
		Spec:       v1alpha1.EtcdSnapshotSpec{ClusterName: cluster, Reason: v1alpha1.SnapshotManual},
	}
}

func TestCreateSnapshot(t *testing.T) {
	backup := &v1alpha1.EtcdBackupSpec{BucketURL: "s3://b"}
	leaving := snapshotOf("leaving", "c1")
	leaving.DeletionTimestamp, leaving.Finalizers = ptr.To(metav1.Now()), []string{"x/y"}
	for name, row := range map[string]struct {
		cluster *v1alpha1.TalosCluster
		asked   string
		code    connect.Code
		says    string
		made    string
		changed bool
	}{
		"a name of its own":           {storedCluster(backup), "", 0, "", "c1-manual-20260102-030405", true},
		"a name":                      {storedCluster(backup), "before", 0, "", "before", true},
		"one that is there":           {storedCluster(backup), "there", 0, "", "there", false},
		"one of another cluster":      {storedCluster(backup), "foreign", connect.CodeAlreadyExists, "snapshot foreign is one of cluster c2; choose another name", "", false},
		"one that is on its way":      {storedCluster(backup), "leaving", connect.CodeFailedPrecondition, "snapshot leaving is being deleted", "", false},
		"no name":                     {storedCluster(backup), "No Name", connect.CodeInvalidArgument, `name "No Name": lower-case letters`, "", false},
		"nowhere to store it":         {storedCluster(nil), "before", connect.CodeFailedPrecondition, "SnapshotStorage: spec.etcdBackup.bucketURL of TalosCluster c1 is not set", "", false},
		"a cluster that is not there": {nil, "before", connect.CodeNotFound, `there is no cluster "c1"`, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			objects := []client.Object{snapshotOf("there", "c1"), snapshotOf("foreign", "c2"), leaving.DeepCopy()}
			if row.cluster != nil {
				objects = append(objects, row.cluster)
			}
			w := newWorld(t, objects...)
			response, err := w.server.CreateSnapshot(t.Context(), connect.NewRequest(&pb.CreateSnapshotRequest{
				Cluster: &pb.Reference{Namespace: c1.Namespace, Name: c1.Name}, Name: row.asked,
			}))
			if row.says != "" {
				g.Expect(connect.CodeOf(err)).To(Equal(row.code))
				g.Expect(err).To(MatchError(ContainSubstring(row.says)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(response.Msg.GetSnapshot().GetRef().GetName()).To(Equal(row.made))
			g.Expect(response.Msg.GetChanged()).To(Equal(row.changed))
			stored := &v1alpha1.EtcdSnapshot{}
			g.Expect(w.Client.Get(t.Context(), client.ObjectKey{Namespace: c1.Namespace, Name: row.made}, stored)).To(Succeed())
			if row.changed {
				g.Expect(stored.Spec).To(Equal(v1alpha1.EtcdSnapshotSpec{ClusterName: "c1", Reason: v1alpha1.SnapshotManual, Requester: "jane"}))
				g.Expect(stored.Labels).To(HaveKeyWithValue("cluster.x-k8s.io/cluster-name", "c1"))
			}
		})
	}
}

func TestDeleteSnapshot(t *testing.T) {
	g := NewWithT(t)
	kept := snapshotOf("kept", "c1")
	kept.Finalizers = []string{v1alpha1.EtcdSnapshotFinalizer}
	w := newWorld(t, snapshotOf("there", "c1"), kept)
	remove := func(name string, retain bool) (bool, error) {
		response, err := w.server.DeleteSnapshot(t.Context(), connect.NewRequest(&pb.DeleteSnapshotRequest{
			Ref: &pb.Reference{Namespace: c1.Namespace, Name: name}, Retain: retain,
		}))
		if err != nil {
			return false, err
		}
		return response.Msg.GetGone(), nil
	}
	g.Expect(remove("there", false)).To(BeTrue())
	g.Expect(remove("kept", true)).To(BeFalse(), "the hub lets it go")
	g.Expect(w.writes).To(Equal([]string{"delete EtcdSnapshot", "patch EtcdSnapshot", "delete EtcdSnapshot"}))
	stored := &v1alpha1.EtcdSnapshot{}
	g.Expect(w.Client.Get(t.Context(), client.ObjectKeyFromObject(kept), stored)).To(Succeed())
	g.Expect(stored.Retained()).To(BeTrue())
	_, err := remove("nothing", false)
	g.Expect(err).To(MatchError(ContainSubstring(`there is no snapshot "nothing" in namespace "default"; list them with: ichor snapshot list`)))
}

func TestGetSnapshotSaysWhatIsInIt(t *testing.T) {
	g := NewWithT(t)
	s := snapshotOf("there", "c1")
	s.Spec.Contents = &v1alpha1.SnapshotContents{
		Revision: 7, Hash: "h", Location: v1alpha1.SnapshotLocation{BucketURL: "s3://b", Key: "k"},
		Keys:       v1alpha1.SnapshotKeys{Encryption: []v1alpha1.SnapshotEncryptionKey{{Provider: "secretbox", Fingerprint: "f"}}},
		Encryption: &v1alpha1.SnapshotEncryption{Recipient: "age1x"},
	}
	w := newWorld(t, s)
	response, err := w.server.GetSnapshot(t.Context(), connect.NewRequest(&pb.GetSnapshotRequest{Ref: &pb.Reference{Namespace: c1.Namespace, Name: "there"}}))
	g.Expect(err).NotTo(HaveOccurred())
	c := response.Msg.GetSnapshot().GetContents()
	g.Expect([]any{c.GetRevision(), c.GetSha256(), c.GetBucketUrl(), c.GetKey(), c.GetRecipient(), c.GetKeys().GetEncryption()[0].GetProvider()}).
		To(Equal([]any{int64(7), "h", "s3://b", "k", "age1x", "secretbox"}))
}
