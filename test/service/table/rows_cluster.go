// SPDX-License-Identifier: Apache-2.0

package table

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	"connectrpc.com/connect"
	"github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// files are a kubeconfig and a talosconfig whose certificates end at a time.
func files(ends time.Time) (kubeconfig, talosconfig []byte) {
	private := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: ends, Subject: pkix.Name{Organization: []string{"os:admin"}}}
	der := must(x509.CreateCertificate(rand.Reader, template, template, private.Public(), private))
	keyDER := must(x509.MarshalPKCS8PrivateKey(private))
	crt := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	key := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	kubeconfig = fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: x, user: x}}],
clusters: [{name: x, cluster: {server: "https://10.0.0.10:6443", certificate-authority-data: %[1]s}}],
users: [{name: x, user: {client-certificate-data: %[1]s, client-key-data: %[2]s}}]}`, crt, key)
	talosconfig = fmt.Appendf(nil, "context: x\ncontexts: {x: {endpoints: [10.0.0.1], ca: %[1]s, crt: %[1]s, key: %[2]s}}\n", crt, key)
	return kubeconfig, talosconfig
}

// must is a value that is always there.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// bring imports cluster n1 with usable files.
func bring(change ...func(*pb.ImportClusterRequest)) func(context.Context, Clients) (proto.Message, error) {
	return func(ctx context.Context, c Clients) (proto.Message, error) {
		kubeconfig, talosconfig := files(now.Add(time.Hour))
		request := &pb.ImportClusterRequest{Ref: ref("n1"), Kubeconfig: kubeconfig, Talosconfig: talosconfig}
		for _, ch := range change {
			ch(request)
		}
		return unwrap(c.Clusters.ImportCluster(ctx, connect.NewRequest(request)))
	}
}

func adopt(name string, change ...func(*pb.ImportClusterRequest)) func(context.Context, Clients) (proto.Message, error) {
	return bring(append(change, func(r *pb.ImportClusterRequest) { r.Ref, r.Kubeconfig, r.Talosconfig = ref(name), nil, nil })...)
}

func labelled(key, value string) func(*pb.ImportClusterRequest) {
	return func(r *pb.ImportClusterRequest) { r.Labels = map[string]string{key: value} }
}

var imported = []string{"create Cluster", "create Secret", "create Secret", "create TalosCluster"}

// deniedTo is a user who may not do something to a resource.
func deniedTo(verb, resource string) func(*World) {
	return func(w *World) {
		w.Denied = func(what authorizationv1.ResourceAttributes) bool {
			return what.Verb == verb && what.Resource == resource
		}
	}
}

// imports are clusters that are brought. Cases A10 and A14 are among what is refused.
func imports() []Row {
	unopened := func(w *World) { w.Trouble = errors.New("the two files open different clusters") }
	other := func(w *World) { w.Found.OwnerID = "other-hub" }
	managed := "refused: TargetOwned: cluster n1 is managed already, under owner ID other-hub: by another hub, or by this one before it was forgotten here " +
		"(two hubs would undo each other, so forget it there first, and then import it with --take-over)"
	never := func(g gomega.Gomega, w *World) {
		g.Expect(w.Looks()).To(gomega.BeZero(), "nothing was opened for who may not import")
	}
	return []Row{
		{
			Name: "import/a cluster", Call: bring(labelled("region", "eu")), Writes: imported,
			Check: func(g gomega.Gomega, answer proto.Message, w *World) {
				g.Expect(w.Looks()).To(gomega.Equal(1))
				g.Expect(answer.(*pb.ImportClusterResponse).GetCluster().GetRef().GetName()).To(gomega.Equal("n1"))
				g.Expect(read(g, w, &v1alpha1.TalosCluster{}, "n1").Labels).To(gomega.HaveKeyWithValue("region", "eu"))
				g.Expect(read(g, w, &clusterv1.Cluster{}, "n1").Labels).To(gomega.HaveKeyWithValue("region", "eu"))
				read(g, w, &corev1.Secret{}, "n1-kubeconfig")
				forgetUID(answer)
			},
		},
		{
			Name: "import/without a look", Call: bring(func(r *pb.ImportClusterRequest) { r.Offline = true }), Writes: imported,
			Check: func(g gomega.Gomega, answer proto.Message, w *World) {
				g.Expect(w.Looks()).To(gomega.BeZero())
				forgetUID(answer)
			},
		},
		{
			Name: "import/what does not open", Given: with(unopened), Call: bring(), Code: connect.CodeFailedPrecondition,
			Message: "the two files open different clusters; to import it without a look at it: --offline",
		},
		{
			Name: "import/what another hub manages", Given: with(other), Call: bring(), Code: connect.CodeFailedPrecondition, Message: managed, Gates: []string{"TargetOwned"},
		},
		{
			Name: "import/take it over", Given: with(other), Call: bring(func(r *pb.ImportClusterRequest) { r.TakeOver = true }), Writes: imported,
			Check: func(g gomega.Gomega, answer proto.Message, w *World) {
				g.Expect(read(g, w, &v1alpha1.TalosCluster{}, "n1").Annotations).To(gomega.HaveKeyWithValue("ichor.maesh.dev/take-over", "other-hub"))
				forgetUID(answer)
			},
		},
		{
			Name: "import/take it over without override", Given: with(deniedTo("override", "talosclusters")), Code: connect.CodePermissionDenied,
			Call:    bring(func(r *pb.ImportClusterRequest) { r.TakeOver = true }),
			Message: User + " may not override talosclusters in namespace default",
		},
		{
			Name: "import/expired (A10)", Call: bring(func(r *pb.ImportClusterRequest) { r.Kubeconfig, _ = files(now.Add(-time.Hour)) }), Code: connect.CodeInvalidArgument,
			Message: `kubeconfig is invalid: the client certificate of user "x" ended on 2026-01-02`,
		},
		invalid("import/no name", "ref.name is missing: the name of an object", bring(func(r *pb.ImportClusterRequest) { r.Ref = ref("") })),
		invalid("import/a label of the hub's", `labels["cluster.x-k8s.io/cluster-name"] "n2": is the name of the cluster`, bring(labelled("cluster.x-k8s.io/cluster-name", "n2"))),
		{
			Name: "import/without create on clusters", Given: with(deniedTo("create", "talosclusters")), Call: bring(), Code: connect.CodePermissionDenied,
			Message: User + " may not create talosclusters in namespace default", Check: func(g gomega.Gomega, _ proto.Message, w *World) { never(g, w) },
		},
		{
			Name: "import/without create on secrets", Given: with(deniedTo("create", "secrets")), Call: bring(), Code: connect.CodePermissionDenied,
			Message: User + " may not create secrets in namespace default", Check: func(g gomega.Gomega, _ proto.Message, w *World) { never(g, w) },
		},
		{
			Name: "adopt/a cluster of Cluster API", Given: given(providers()...), Call: adopt("p1", labelled("region", "eu")), Writes: []string{"create TalosCluster"},
			Check: func(g gomega.Gomega, answer proto.Message, w *World) {
				g.Expect(read(g, w, &v1alpha1.TalosCluster{}, "p1").Labels).To(gomega.HaveKeyWithValue("region", "eu"))
				g.Expect(read(g, w, &clusterv1.Cluster{}, "p1").Labels).To(gomega.BeEmpty(), "it is its providers'")
				forgetUID(answer)
			},
		},
		{
			Name: "adopt/no such cluster", Call: adopt("p9"), Code: connect.CodeNotFound,
			Message: "there is no Cluster default/p9; bring a cluster that Cluster API did not make with --from-kubeconfig and --from-talosconfig",
		},
	}
}

// forgetUID leaves out of an answer what differs from call to call.
func forgetUID(answer proto.Message) {
	cluster := answer.(*pb.ImportClusterResponse).GetCluster()
	cluster.Uid, cluster.CreateTime = "", nil
}

// providers are the objects of cluster p1, which Cluster API's providers made.
func providers() []client.Object {
	kubeconfig, talosconfig := files(now.Add(time.Hour))
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "p1", UID: "uid-p1"}}
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "MetalCluster", Name: "p1"}
	return []client.Object{
		cluster,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "p1-kubeconfig"}, Data: map[string][]byte{"value": kubeconfig}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "p1-talosconfig"}, Data: map[string][]byte{"talosconfig": talosconfig}},
	}
}

func forget(name string) func(context.Context, Clients) (proto.Message, error) {
	return func(ctx context.Context, c Clients) (proto.Message, error) {
		return unwrap(c.Clusters.ForgetCluster(ctx, connect.NewRequest(&pb.ForgetClusterRequest{Ref: ref(name)})))
	}
}

// own is the Cluster that an import of c1 made.
func own(change ...func(*clusterv1.Cluster)) *clusterv1.Cluster {
	cluster := &clusterv1.Cluster{ObjectMeta: meta(Cluster, Cluster)}
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "ichor.maesh.dev", Kind: "TalosCluster", Name: Cluster}
	for _, c := range change {
		c(cluster)
	}
	return cluster
}

var forgotten = []string{"delete TalosCluster", "delete Cluster"}

// forgets take clusters out of the hub. Nothing of them touches a machine, and so no row writes anything but deletions of the hub's own.
func forgets() []Row {
	gone := func(want bool) func(gomega.Gomega, proto.Message, *World) {
		return func(g gomega.Gomega, answer proto.Message, _ *World) {
			g.Expect(answer.(*pb.ForgetClusterResponse).GetGone()).To(gomega.Equal(want))
		}
	}
	dying := changed(settling(), func(op *v1alpha1.TalosOperation) { op.DeletionTimestamp = new(metav1.NewTime(now)) })
	adopted := own(func(c *clusterv1.Cluster) {
		c.Spec.ControlPlaneRef.Kind = "TalosControlPlane"
		c.Spec.ControlPlaneRef.Name = Cluster
		c.Spec.ControlPlaneRef.APIGroup = "x.example"
	})
	tracked := cluster(func(c *v1alpha1.TalosCluster) { c.Labels["kustomize.toolkit.fluxcd.io/name"] = "clusters" })
	member := &clusterv1.Machine{ObjectMeta: meta("c1-m-1", Cluster), Spec: clusterv1.MachineSpec{ClusterName: Cluster}}
	return []Row{
		{Name: "forget/an imported cluster", Given: given(own()), Call: forget(Cluster), Writes: forgotten, Check: gone(true)},
		{
			Name: "forget/an adopted cluster", Given: given(adopted), Call: forget(Cluster), Writes: forgotten[:1],
			Check: func(g gomega.Gomega, answer proto.Message, w *World) {
				gone(true)(g, answer, w)
				read(g, w, &clusterv1.Cluster{}, Cluster)
			},
		},
		{
			Name: "forget/one whose Cluster goes later", Given: given(own(func(c *clusterv1.Cluster) { c.Finalizers = []string{"cluster.cluster.x-k8s.io"} })),
			Call: forget(Cluster), Writes: forgotten, Check: gone(false),
		},
		{
			Name: "forget/while an operation is not finished", Given: given(own(), Operation("c1-talos-x", Cluster)), Call: forget(Cluster), Code: connect.CodeFailedPrecondition,
			Message: "refused: OperationUnfinished: operation c1-talos-x of cluster c1 is not finished, and has to settle first " +
				"(delete it with: ichor operation delete c1-talos-x, and then forget the cluster)",
			Gates: []string{"OperationUnfinished"},
		},
		{Name: "forget/while an operation settles", Given: given(own(), dying), Call: forget(Cluster), Check: gone(false)},
		{Name: "forget/after an operation", Given: given(own(), completed("c1-talos-x")), Call: forget(Cluster), Writes: forgotten, Check: gone(true)},
		{
			Name: "forget/what Flux keeps", Given: given(own(), tracked), Call: forget(Cluster), Code: connect.CodeFailedPrecondition,
			Message: `refused: SpecTracked: TalosCluster c1 is kept by Kustomization "clusters" of Flux, which would make it anew (remove it from Git)`,
			Gates:   []string{"SpecTracked"},
		},
		{
			Name: "forget/a Cluster with Machines", Given: given(own(), member), Call: forget(Cluster), Code: connect.CodeFailedPrecondition,
			Message: "Cluster default/c1 has Machines of Cluster API (c1-m-1), which would be deleted with it; leave it to Cluster API, " +
				"and delete the TalosCluster alone: kubectl delete taloscluster c1 -n default",
		},
		{
			Name: "forget/the second deletion fails", Given: with(func(w *World) {
				w.Fails = func(write string) error {
					if write == "delete Cluster" {
						return apierrors.NewServiceUnavailable("no answer")
					}
					return nil
				}
			}, own()), Call: forget(Cluster), Writes: forgotten, Code: connect.CodeUnavailable,
			Message: "TalosCluster default/c1 is deleted, but Cluster default/c1 is not: deleting Cluster default/c1: no answer; to finish it, repeat the request",
			Partly:  &pb.PartlyDone{Done: "TalosCluster default/c1 is deleted", Missing: "Cluster default/c1 is not", Finish: "repeat the request"},
		},
		{
			Name: "forget/the second deletion fails, and the same again finishes it", Given: with(func(w *World) {
				failed := false
				w.Fails = func(write string) error {
					if write == "delete Cluster" && !failed {
						failed = true
						return apierrors.NewServiceUnavailable("no answer")
					}
					return nil
				}
			}, own()), Call: twice(forget(Cluster), forget(Cluster)), Writes: append(forgotten[:2:2], "delete Cluster"), Check: gone(true),
		},
		{
			Name: "forget/nobody", Call: forget("c9"), Code: connect.CodeNotFound, Message: `there is no cluster "c9" in namespace "default"; list them with: ichor cluster list`,
		},
		{
			Name: "forget/somebody else's Cluster", Given: given(providers()...), Call: forget("p1"), Code: connect.CodeNotFound,
			Message: `there is no cluster "p1" in namespace "default"; list them with: ichor cluster list`,
		},
	}
}
