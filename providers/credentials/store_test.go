// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ichor.maesh.dev/hub/providers/target"
)

var c1 = target.Target{
	NamespacedName: types.NamespacedName{Namespace: "default", Name: "c1"}, KubeconfigSecret: "c1-kubeconfig", TalosconfigSecret: "c1-talosconfig",
}

func secret(name, key string, data []byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string][]byte{key: data}}
}

func TestStore(t *testing.T) {
	g := NewWithT(t)
	c := fake.NewClientBuilder().WithObjects(secret("c1-kubeconfig", "value", kubeconfig(t)), secret("c1-talosconfig", "talosconfig", talosconfig(t, "a", "b"))).Build()
	store := &Store{Reader: c}

	kube, err := store.Kubeconfig(t.Context(), c1)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(kube.Config.Host).To(Equal("https://10.0.0.10:6443"))

	_, err = store.Talosconfig(t.Context(), c1)
	g.Expect(err).To(MatchError(ErrInvalid))
	g.Expect(err).To(MatchError(HavePrefix(`secret default/c1-talosconfig, key "talosconfig": `)))
	chosen := c1
	chosen.TalosconfigContext = "b"
	b, err := store.Talosconfig(t.Context(), chosen)
	g.Expect(err).NotTo(HaveOccurred())
	chosen.TalosconfigContext = "a"
	a, err := store.Talosconfig(t.Context(), chosen)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(a.Version).NotTo(Equal(b.Version), "another context is another credential")
}

// Case A11: a credential that was replaced is another version, so connections are made anew.
func TestCaseA11VersionFollowsTheSecret(t *testing.T) {
	g := NewWithT(t)
	c := fake.NewClientBuilder().WithObjects(secret("c1-kubeconfig", "value", kubeconfig(t)), secret("c1-talosconfig", "talosconfig", talosconfig(t, "c1"))).Build()
	store := &Store{Reader: c}
	kube, err := store.Kubeconfig(t.Context(), c1)
	g.Expect(err).NotTo(HaveOccurred())
	talos, err := store.Talosconfig(t.Context(), c1)
	g.Expect(err).NotTo(HaveOccurred())
	again, err := store.Talosconfig(t.Context(), c1)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again.Version).To(Equal(talos.Version))

	g.Expect(c.Update(t.Context(), secret("c1-kubeconfig", "value", kubeconfig(t)))).To(Succeed())
	g.Expect(c.Update(t.Context(), secret("c1-talosconfig", "talosconfig", talosconfig(t, "c1")))).To(Succeed())
	newKube, err := store.Kubeconfig(t.Context(), c1)
	g.Expect(err).NotTo(HaveOccurred())
	newTalos, err := store.Talosconfig(t.Context(), c1)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(newKube.Version).NotTo(Equal(kube.Version))
	g.Expect(newTalos.Version).NotTo(Equal(talos.Version))
	g.Expect(store.KubeconfigVersion(t.Context(), c1)).To(Equal(newKube.Version), "and is known without reading the file")
	g.Expect(store.TalosconfigVersion(t.Context(), c1)).To(Equal(newTalos.Version))
	consenting := c1
	consenting.AllowInsecure = true
	g.Expect(store.KubeconfigVersion(t.Context(), consenting)).NotTo(Equal(newKube.Version))
}

func TestStoreTellsWhatIsMissing(t *testing.T) {
	for name, row := range map[string]struct {
		objects []client.Object
		err     string
	}{
		"the Secret":         {nil, "secret default/c1-kubeconfig is missing, or not labelled cluster.x-k8s.io/cluster-name"},
		"the key":            {[]client.Object{secret("c1-kubeconfig", "kubeconfig", []byte("x"))}, `key "value" of secret default/c1-kubeconfig is missing`},
		"what the key holds": {[]client.Object{secret("c1-kubeconfig", "value", nil)}, `key "value" of secret default/c1-kubeconfig is missing`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := (&Store{Reader: fake.NewClientBuilder().WithObjects(row.objects...).Build()}).Kubeconfig(t.Context(), c1)
			g.Expect(err).To(MatchError(ErrMissing))
			g.Expect(err).To(MatchError(row.err))
		})
	}
	t.Run("nothing is known", func(t *testing.T) {
		g := NewWithT(t)
		c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("no answer")
		}}).Build()
		_, err := (&Store{Reader: c}).Talosconfig(t.Context(), c1)
		g.Expect(err).To(MatchError("reading secret default/c1-talosconfig: no answer"))
		g.Expect(errors.Is(err, ErrMissing)).To(BeFalse(), "what cannot be read is not gone")
	})
}
