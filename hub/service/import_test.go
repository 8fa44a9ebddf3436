// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/credentials"
)

func brought(t *testing.T) Import {
	t.Helper()
	kubeconfig, talosconfig := files(t, "https://10.0.0.10:6443", now.Add(time.Hour))
	return Import{Name: "c1", Namespace: "default", Kubeconfig: kubeconfig, Talosconfig: talosconfig}
}

func TestImport(t *testing.T) {
	w, in := newWorld(t), brought(t)
	imported, err := w.Import(w.ctx, in)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(imported.Name).To(Equal("c1"))
	w.g.Expect(w.verified).To(Equal([]string{"https://10.0.0.10:6443"}))
	w.g.Expect(w.writes).To(Equal([]string{"create Cluster", "create Secret", "create Secret", "create TalosCluster"}), "the hub starts with the TalosCluster")

	capi := &clusterv1.Cluster{}
	w.get(capi, "c1")
	w.g.Expect(capi.Spec.InfrastructureRef).To(Equal(clusterv1.ContractVersionedObjectReference{APIGroup: "ichor.maesh.dev", Kind: "TalosCluster", Name: "c1"}))
	w.g.Expect(capi.Spec.ControlPlaneEndpoint).To(Equal(clusterv1.APIEndpoint{Host: "10.0.0.10", Port: 6443}))
	owners := []metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "c1", UID: capi.UID}}

	for name, row := range map[string]struct {
		key  string
		data []byte
	}{"c1-kubeconfig": {"value", in.Kubeconfig}, "c1-talosconfig": {"talosconfig", in.Talosconfig}} {
		secret := &corev1.Secret{}
		w.get(secret, name)
		w.g.Expect(secret.Data).To(Equal(map[string][]byte{row.key: row.data}))
		w.g.Expect(secret.Labels).To(HaveKeyWithValue("cluster.x-k8s.io/cluster-name", "c1"))
		w.g.Expect(secret.OwnerReferences).To(Equal(owners))
	}
	talos := &v1alpha1.TalosCluster{}
	w.get(talos, "c1")
	w.g.Expect(talos.Labels).To(HaveKeyWithValue("cluster.x-k8s.io/cluster-name", "c1"))
	w.g.Expect(talos.OwnerReferences).To(Equal(owners))
	w.g.Expect(talos.Annotations["ichor.maesh.dev/owner-id"]).NotTo(BeEmpty())
	w.g.Expect(talos.Spec).To(Equal(v1alpha1.TalosClusterSpec{ControlPlaneEndpoint: &v1alpha1.APIEndpoint{Host: "10.0.0.10", Port: 6443}}))
}

// Importing again brings new credentials, and keeps what else is there.
func TestImportAgain(t *testing.T) {
	w, in := newWorld(t), brought(t)
	_, err := w.Import(w.ctx, in)
	w.g.Expect(err).NotTo(HaveOccurred())
	before := &v1alpha1.TalosCluster{}
	w.get(before, "c1")
	declared := before.DeepCopy()
	declared.Spec.TalosVersion = "v1.13.9"
	w.g.Expect(w.Client.Update(w.ctx, declared)).To(Succeed())

	again := brought(t)
	again.TalosContext = "x"
	w.writes = nil
	_, err = w.Import(w.ctx, again)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(w.writes).To(Equal([]string{"patch Secret", "patch Secret", "patch TalosCluster"}))
	after, secret := &v1alpha1.TalosCluster{}, &corev1.Secret{}
	w.get(after, "c1")
	w.g.Expect(after.Annotations).To(Equal(before.Annotations), "the owner ID is made once")
	w.g.Expect(after.Spec.TalosVersion).To(Equal("v1.13.9"))
	w.g.Expect(after.Spec.Access).To(Equal(&v1alpha1.AccessSpec{TalosconfigContext: "x"}))
	w.get(secret, "c1-kubeconfig")
	w.g.Expect(secret.Data["value"]).To(Equal(again.Kubeconfig))

	w.writes = nil
	_, err = w.Import(w.ctx, again)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(w.writes).To(BeEmpty(), "the same again writes nothing")
}

// A target that moved to another server is found there, and what else its Cluster has stays.
func TestImportAgainFromAnotherServer(t *testing.T) {
	w := newWorld(t)
	_, err := w.Import(w.ctx, brought(t))
	w.g.Expect(err).NotTo(HaveOccurred())
	capi := &clusterv1.Cluster{}
	w.get(capi, "c1")
	capi.Labels, capi.Spec.Paused = map[string]string{"a": "b"}, ptr.To(true)
	w.g.Expect(w.Client.Update(w.ctx, capi)).To(Succeed())

	moved := brought(t)
	moved.Kubeconfig, _ = files(t, "https://api.example.org:7443", now.Add(time.Hour))
	w.writes = nil
	_, err = w.Import(w.ctx, moved)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(w.writes).To(Equal([]string{"patch Cluster", "patch Secret", "patch Secret", "patch TalosCluster"}))
	want := capi.Spec.DeepCopy()
	want.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "api.example.org", Port: 7443}
	talos := &v1alpha1.TalosCluster{}
	w.get(capi, "c1")
	w.g.Expect(capi.Spec).To(Equal(*want))
	w.g.Expect(capi.Labels).To(Equal(map[string]string{"a": "b"}))
	w.get(talos, "c1")
	w.g.Expect(talos.Spec.ControlPlaneEndpoint).To(Equal(&v1alpha1.APIEndpoint{Host: "api.example.org", Port: 7443}))

	w.fail = func(string) error { return errors.New("no answer") }
	_, err = w.Import(w.ctx, brought(t))
	w.g.Expect(err).To(MatchError("changing Cluster default/c1: no answer"))
}

// What an object belongs to besides its Cluster stays; the Cluster is named once, even if it was made anew.
func TestImportKeepsOtherOwners(t *testing.T) {
	other := metav1.OwnerReference{APIVersion: "example.org/v1", Kind: "Fleet", Name: "f", UID: "u9"}
	w, in := newWorld(t), brought(t)
	_, err := w.Import(w.ctx, in)
	w.g.Expect(err).NotTo(HaveOccurred())
	objects := map[string]client.Object{"c1-kubeconfig": &corev1.Secret{}, "c1-talosconfig": &corev1.Secret{}, "c1": &v1alpha1.TalosCluster{}}
	for name, object := range objects {
		w.get(object, name)
		before := object.GetOwnerReferences()[0]
		before.UID = "uid-of-before"
		object.SetOwnerReferences([]metav1.OwnerReference{other, before})
		object.SetLabels(map[string]string{"a": "b"})
		w.g.Expect(w.Client.Update(w.ctx, object)).To(Succeed())
	}
	_, err = w.Import(w.ctx, in)
	w.g.Expect(err).NotTo(HaveOccurred())
	capi := &clusterv1.Cluster{}
	w.get(capi, "c1")
	for name, object := range objects {
		w.get(object, name)
		w.g.Expect(object.GetOwnerReferences()).To(ConsistOf(other, metav1.OwnerReference{
			APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "c1", UID: capi.UID,
		}), name)
		w.g.Expect(object.GetLabels()).To(Equal(map[string]string{"a": "b", "cluster.x-k8s.io/cluster-name": "c1"}), name)
	}
}

// The Secrets that a TalosCluster names are those that get new credentials, whatever the names would be by default.
func TestImportWritesTheSecretsOfItsAccess(t *testing.T) {
	for name, row := range map[string]struct {
		access     *v1alpha1.AccessSpec
		kubeconfig string
		talos      string
	}{
		"none":            {nil, "c1-kubeconfig", "c1-talosconfig"},
		"both":            {&v1alpha1.AccessSpec{KubeconfigSecretName: "k", TalosconfigSecretName: "t"}, "k", "t"},
		"one":             {&v1alpha1.AccessSpec{TalosconfigSecretName: "t"}, "c1-kubeconfig", "t"},
		"a context alone": {&v1alpha1.AccessSpec{TalosconfigContext: "x"}, "c1-kubeconfig", "c1-talosconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			w, in := newWorld(t, &v1alpha1.TalosCluster{ObjectMeta: named("c1", "c1"), Spec: v1alpha1.TalosClusterSpec{Access: row.access}}), brought(t)
			imported, err := w.Import(w.ctx, in)
			w.g.Expect(err).NotTo(HaveOccurred())
			list := &corev1.SecretList{}
			w.g.Expect(w.Client.List(w.ctx, list)).To(Succeed())
			data := map[string]map[string][]byte{}
			for _, secret := range list.Items {
				data[secret.Name] = secret.Data
			}
			w.g.Expect(data).To(Equal(map[string]map[string][]byte{row.kubeconfig: {"value": in.Kubeconfig}, row.talos: {"talosconfig": in.Talosconfig}}))
			w.g.Expect(imported.KubeconfigSecretName()).To(Equal(row.kubeconfig), "the hub reads what was written")
			w.g.Expect(imported.TalosconfigSecretName()).To(Equal(row.talos))
		})
	}
}

// A context that somebody names changes nothing else about the access. Without one the kept context goes: what was checked is what is
// used from now on.
func TestImportKeepsAccess(t *testing.T) {
	for name, row := range map[string]struct {
		context      string
		before, want *v1alpha1.AccessSpec
	}{
		"no context, no access": {"", nil, nil},
		"no context":            {"", &v1alpha1.AccessSpec{TalosconfigContext: "old"}, &v1alpha1.AccessSpec{}},
		"no context, and Secrets": {
			"", &v1alpha1.AccessSpec{KubeconfigSecretName: "k", TalosconfigSecretName: "t", TalosconfigContext: "old"},
			&v1alpha1.AccessSpec{KubeconfigSecretName: "k", TalosconfigSecretName: "t"},
		},
		"no context, and there was none": {
			"", &v1alpha1.AccessSpec{KubeconfigSecretName: "k"}, &v1alpha1.AccessSpec{KubeconfigSecretName: "k"},
		},
		"the first context": {"x", nil, &v1alpha1.AccessSpec{TalosconfigContext: "x"}},
		"another context": {
			"x", &v1alpha1.AccessSpec{KubeconfigSecretName: "k", TalosconfigSecretName: "t", TalosconfigContext: "old"},
			&v1alpha1.AccessSpec{KubeconfigSecretName: "k", TalosconfigSecretName: "t", TalosconfigContext: "x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, &v1alpha1.TalosCluster{ObjectMeta: named("c1", "c1"), Spec: v1alpha1.TalosClusterSpec{Access: row.before}})
			in := brought(t)
			in.TalosContext = row.context
			_, err := w.Import(w.ctx, in)
			w.g.Expect(err).NotTo(HaveOccurred())
			after := &v1alpha1.TalosCluster{}
			w.get(after, "c1")
			w.g.Expect(after.Spec.Access).To(Equal(row.want))
		})
	}
}

// An import that was cut short says how far it came, and is finished by the next one.
func TestImportFinishesWhatWasLeft(t *testing.T) {
	const begin = "in namespace default, these are written: Cluster c1"
	for nth, row := range []struct{ done, missing, cause string }{
		{cause: "creating Cluster default/c1: no answer"},
		{begin, "these are not: Secret c1-kubeconfig, Secret c1-talosconfig, TalosCluster c1", "writing Secret default/c1-kubeconfig: no answer"},
		{begin + ", Secret c1-kubeconfig", "these are not: Secret c1-talosconfig, TalosCluster c1", "writing Secret default/c1-talosconfig: no answer"},
		{begin + ", Secret c1-kubeconfig, Secret c1-talosconfig", "these are not: TalosCluster c1", "writing TalosCluster default/c1: no answer"},
	} {
		w, in := newWorld(t), brought(t)
		w.fail = func(string) error {
			if len(w.writes) > nth {
				return errors.New("no answer")
			}
			return nil
		}
		_, err := w.Import(w.ctx, in)
		var partly *PartlyDoneError
		if nth == 0 {
			w.g.Expect(err).To(MatchError(row.cause))
			w.g.Expect(errors.As(err, &partly)).To(BeFalse(), "nothing was written")
		} else {
			w.g.Expect(errors.As(err, &partly)).To(BeTrue(), "%v", err)
			w.g.Expect(partly.Done).To(Equal(row.done))
			w.g.Expect(partly.Missing).To(Equal(row.missing))
			w.g.Expect(partly.Finish).To(Equal("run the import again"))
			w.g.Expect(partly.Cause).To(MatchError(row.cause))
		}
		w.fail = func(string) error { return nil }
		_, err = w.Import(w.ctx, in)
		w.g.Expect(err).NotTo(HaveOccurred())
		w.get(&v1alpha1.TalosCluster{}, "c1")
	}
}

var anyAuthority = regexp.MustCompile(`certificate-authority-data: .*`)

// What does not open the cluster is refused, unless nobody is to look.
func TestImportLooksAtTheTarget(t *testing.T) {
	w, in := newWorld(t), brought(t)
	w.refusal = errors.New("talosconfig: no endpoint opens the Talos API: 10.0.0.1: no answer")
	_, err := w.Import(w.ctx, in)
	w.g.Expect(err).To(MatchError("talosconfig: no endpoint opens the Talos API: 10.0.0.1: no answer; to import it without a look at it: --offline"))
	w.g.Expect(err).To(MatchError(w.refusal))
	w.g.Expect(w.writes).To(BeEmpty())

	in.Offline = true
	_, err = w.Import(w.ctx, in)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(w.verified).To(HaveLen(1))
}

// Consent to an unchecked server is kept for as long as the kubeconfig needs it.
func TestImportKeepsConsent(t *testing.T) {
	w, in := newWorld(t), brought(t)
	secure := in.Kubeconfig
	in.Kubeconfig = anyAuthority.ReplaceAll(secure, []byte("insecure-skip-tls-verify: true}}],"))
	in.AllowInsecure = true
	imported, err := w.Import(w.ctx, in)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(imported.Spec.Access).To(Equal(&v1alpha1.AccessSpec{KubernetesServerVerification: "Skipped"}))
	w.g.Expect(imported.AllowsInsecure()).To(BeTrue())
	in.Kubeconfig = secure
	imported, err = w.Import(w.ctx, in)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(imported.AllowsInsecure()).To(BeFalse(), "a flag that was not needed allows nothing")
}

// Of a file with several contexts, only the chosen one gets into the Secret.
func TestImportLeavesOtherContextsOut(t *testing.T) {
	w, in := newWorld(t), brought(t)
	in.Kubeconfig = []byte(strings.NewReplacer(
		"contexts: [", "contexts: [{name: other, context: {cluster: x, user: other}}, ", "users: [", "users: [{name: other, user: {token: secret}}, ").Replace(string(in.Kubeconfig)))
	in.Talosconfig = []byte(strings.Replace(string(in.Talosconfig), "contexts: {", "contexts: {other: {endpoints: [10.9.9.9]}, ", 1))
	in.TalosContext = "x"
	_, err := w.Import(w.ctx, in)
	w.g.Expect(err).NotTo(HaveOccurred())
	kube, talos := &corev1.Secret{}, &corev1.Secret{}
	w.get(kube, "c1-kubeconfig")
	w.get(talos, "c1-talosconfig")
	w.g.Expect(string(kube.Data["value"])).NotTo(ContainSubstring("secret"))
	w.g.Expect(string(talos.Data["talosconfig"])).NotTo(ContainSubstring("10.9.9.9"))
	_, err = credentials.ParseKubeconfig(kube.Data["value"], credentials.KubeconfigOptions{})
	w.g.Expect(err).NotTo(HaveOccurred())
	_, err = credentials.ParseTalosconfig(talos.Data["talosconfig"], "x", "c1")
	w.g.Expect(err).NotTo(HaveOccurred())
}

// What cannot be used is refused before anything is written.
func TestImportRefuses(t *testing.T) {
	expired := func(in *Import, t *testing.T) {
		in.Kubeconfig, _ = files(t, "https://10.0.0.10", now.Add(-time.Second))
	}
	expiredTalos := func(in *Import, t *testing.T) {
		_, in.Talosconfig = files(t, "https://10.0.0.10", now.Add(-time.Second))
	}
	insecure := func(in *Import, _ *testing.T) {
		in.Kubeconfig = anyAuthority.ReplaceAll(in.Kubeconfig, []byte("insecure-skip-tls-verify: true}}],"))
	}
	for name, row := range map[string]struct {
		change  func(*Import, *testing.T)
		err     string
		invalid bool
	}{
		"a name that is none":            {func(in *Import, _ *testing.T) { in.Name = "C_1" }, `ref.name "C_1": `, false},
		"no kubeconfig":                  {func(in *Import, _ *testing.T) { in.Kubeconfig = nil }, "kubeconfig is invalid: ", true},
		"no talosconfig":                 {func(in *Import, _ *testing.T) { in.Talosconfig = nil }, "talosconfig is invalid: ", true},
		"no such context (A7)":           {func(in *Import, _ *testing.T) { in.TalosContext = "y" }, `talosconfig is invalid: context "y" is not among the contexts ["x"]`, true},
		"an old kubeconfig (A10)":        {expired, `kubeconfig is invalid: the client certificate of user "x" ended on 2026-01-02`, true},
		"an old talosconfig (A10)":       {expiredTalos, `talosconfig is invalid: the client certificate of context "x" ended on 2026-01-02`, true},
		"insecure without consent (A14)": {insecure, "insecure-skip-tls-verify is set; give certificate-authority-data instead, or allow it with --allow-insecure-kubeconfig", true},
		"the files swapped": {func(in *Import, _ *testing.T) {
			in.Kubeconfig, in.Talosconfig = in.Talosconfig, in.Kubeconfig
		}, "kubeconfig is invalid: it is a talosconfig and no kubeconfig", true},
		"no such context of the kubeconfig": {func(in *Import, _ *testing.T) { in.KubeContext = "y" }, `kubeconfig is invalid: context "y" is not among the contexts ["x"]`, true},
		"a port that is none at all": {func(in *Import, t *testing.T) {
			in.Kubeconfig, _ = files(t, "https://10.0.0.10:https", now.Add(time.Hour))
		}, "kubeconfig is invalid: ", true},
	} {
		t.Run(name, func(t *testing.T) {
			w, in := newWorld(t), brought(t)
			row.change(&in, t)
			_, err := w.Import(w.ctx, in)
			w.g.Expect(err).To(MatchError(ContainSubstring(row.err)))
			w.g.Expect(errors.Is(err, credentials.ErrInvalid)).To(Equal(row.invalid))
			w.g.Expect(w.writes).To(BeEmpty())
			w.g.Expect(w.verified).To(BeEmpty(), "what is wrong by itself is not tried")
		})
	}
	for name, row := range map[string]struct {
		ref  clusterv1.ContractVersionedObjectReference
		text string
	}{
		"another kind":      {clusterv1.ContractVersionedObjectReference{APIGroup: "ichor.maesh.dev", Kind: "DockerCluster", Name: "c1"}, "ichor.maesh.dev DockerCluster c1"},
		"another API group": {clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "TalosCluster", Name: "c1"}, "infrastructure.cluster.x-k8s.io TalosCluster c1"},
		"another name":      {clusterv1.ContractVersionedObjectReference{APIGroup: "ichor.maesh.dev", Kind: "TalosCluster", Name: "c2"}, "ichor.maesh.dev TalosCluster c2"},
		"no infrastructure": {clusterv1.ContractVersionedObjectReference{}, "  "},
	} {
		t.Run("the Cluster of somebody else, with "+name, func(t *testing.T) {
			theirs := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"}, Spec: clusterv1.ClusterSpec{InfrastructureRef: row.ref}}
			w := newWorld(t, theirs)
			_, err := w.Import(w.ctx, brought(t))
			w.g.Expect(err).To(MatchError(fmt.Sprintf(
				"there is a Cluster default/c1 already, and its infrastructure is %q and not \"ichor.maesh.dev TalosCluster c1\"; "+
					"choose another name, or give no files to manage it beside Cluster API's providers", row.text)))
			w.g.Expect(w.writes).To(BeEmpty())
			after := &clusterv1.Cluster{}
			w.get(after, "c1")
			w.g.Expect(after.Spec).To(Equal(theirs.Spec))
		})
	}
}

func TestEndpointOf(t *testing.T) {
	for server, want := range map[string]v1alpha1.APIEndpoint{
		"https://10.0.0.10:6443":  {Host: "10.0.0.10", Port: 6443},
		"https://api.example.org": {Host: "api.example.org", Port: 443},
		"https://[fd00::1]:6443":  {Host: "fd00::1", Port: 6443},
	} {
		NewWithT(t).Expect(endpointOf(server)).To(Equal(want))
	}
}

// Two hubs would undo each other: a target that is managed already is imported on purpose, or not at all, and then by who asked for it.
func TestImportTakesNothingOverByAccident(t *testing.T) {
	w, in := newWorld(t), brought(t)
	w.found.OwnerID = "other-hub"
	_, err := w.Import(w.ctx, in)
	w.g.Expect(err).To(MatchError(And(ContainSubstring("cluster c1 is managed already, under owner ID other-hub"), ContainSubstring("--take-over"))))
	w.g.Expect(w.writes).To(BeEmpty())

	in.TakeOver = true
	made, err := w.Import(w.ctx, in)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(made.Annotations).To(HaveKeyWithValue("ichor.maesh.dev/take-over", "other-hub"))

	w.found.OwnerID, in.TakeOver = made.Annotations["ichor.maesh.dev/owner-id"], false
	_, err = w.Import(w.ctx, in)
	w.g.Expect(err).NotTo(HaveOccurred(), "it is this hub's by now")
}
