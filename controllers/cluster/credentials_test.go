// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/kube"
	kubefake "ichor.maesh.dev/hub/providers/kube/fake"
	"ichor.maesh.dev/hub/providers/talos"
	talosfake "ichor.maesh.dev/hub/providers/talos/fake"
	"ichor.maesh.dev/hub/providers/target"
)

var ends = now.AddDate(1, 0, 0)

// secrets are the two credentials of c1, for a user with a role; their certificates end in a year.
func secrets(t *testing.T, role string) []*corev1.Secret {
	t.Helper()
	g := NewWithT(t)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{Organization: []string{role}}, NotBefore: now, NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	g.Expect(err).NotTo(HaveOccurred())
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	g.Expect(err).NotTo(HaveOccurred())
	encode := func(kind string, data []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}))
	}
	crt, key := encode("CERTIFICATE", der), encode("PRIVATE KEY", keyDER)
	kubeconfig := fmt.Sprintf(`{kind: Config, current-context: x, contexts: [{name: x, context: {cluster: x, user: x}}],
clusters: [{name: x, cluster: {server: "https://10.0.0.100:6443", certificate-authority-data: %[1]s}}],
users: [{name: x, user: {client-certificate-data: %[1]s, client-key-data: %[2]s}}]}`, crt, key)
	talosconfig := fmt.Sprintf("contexts: {c1: {endpoints: [10.0.0.1], ca: %[1]s, crt: %[1]s, key: %[2]s}}\n", crt, key)
	secret := func(name, key, data string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string][]byte{key: []byte(data)}}
	}
	return []*corev1.Secret{secret("c1-kubeconfig", "value", kubeconfig), secret("c1-talosconfig", "talosconfig", talosconfig)}
}

// refusing are providers of APIs that answer with an error.
type refusing struct{ kube, talos error }

type refusingKube struct {
	kube.Writer
	err error
}

type refusingTalos struct {
	talos.Writer
	err error
}

func (r refusingKube) Version(context.Context) (string, error) { return "", r.err }

func (r refusingTalos) Members(context.Context) ([]talos.Member, error) { return nil, r.err }

func (r refusingTalos) Machine(context.Context, string) (talos.Machine, error) {
	return talos.Machine{}, r.err
}

type kubeProvider struct {
	kube.Provider
	refusingKube
}

func (p kubeProvider) Reader(context.Context, target.Target) (kube.Reader, error) {
	return p.refusingKube, nil
}

func (p kubeProvider) Writer(context.Context, target.Target, guard.Func) (kube.Writer, error) {
	return p.refusingKube, nil
}

type talosProvider struct{ refusingTalos }

func (p talosProvider) Reader(context.Context, target.Target) (talos.Reader, error) {
	return p.refusingTalos, nil
}

func (p talosProvider) Writer(context.Context, target.Target, guard.Func) (talos.Writer, error) {
	return p.refusingTalos, nil
}

// Cases A10 and A12: what is wrong with a credential is told as that, with its date, and says nothing about the cluster. Time alone changes
// what a probe sees, so that the condition follows.
func TestCaseA10A12Credentials(t *testing.T) {
	const rejected = `connection error: desc = "error reading server preface: remote error: tls: bad certificate"`
	for name, row := range map[string]struct {
		at          time.Time
		role        string
		change      func([]*corev1.Secret)
		refusal     *refusing
		kube, talos credential
	}{
		"all is well": {at: now},
		"a month ahead": {
			at:    ends.AddDate(0, 0, -29),
			kube:  credential{"ExpiringSoon", `kubeconfig: the client certificate of user "x" ends on 2027-01-02`, false},
			talos: credential{"ExpiringSoon", `talosconfig: the client certificate of context "c1" ends on 2027-01-02`, false},
		},
		"past the end": {
			at:    ends.Add(time.Second),
			kube:  credential{"KubeconfigExpired", `kubeconfig: the client certificate of user "x" ended on 2027-01-02`, true},
			talos: credential{"TalosconfigExpired", `talosconfig: the client certificate of context "c1" ended on 2027-01-02`, true},
		},
		"a role too low": {
			at: now, role: "os:operator",
			talos: credential{"TalosconfigRoleTooLow", `talosconfig: the client certificate of context "c1" has the role os:operator; the hub needs os:admin`, true},
		},
		"the key is missing": {
			at: now, change: func(s []*corev1.Secret) { s[0].Data = nil },
			kube: credential{"Missing", `key "value" of secret default/c1-kubeconfig is missing`, true},
		},
		"no talosconfig at all": {
			at: now, change: func(s []*corev1.Secret) { s[1].Data["talosconfig"] = []byte("a: b") },
			talos: credential{"Invalid", `secret default/c1-talosconfig, key "talosconfig": talosconfig is invalid: it is another document and no talosconfig`, true},
		},
		"Kubernetes rejects the user (A12)": {
			at: now, refusal: &refusing{kube: apierrors.NewUnauthorized("Unauthorized"), talos: status.Error(codes.Unavailable, "x")},
			kube: credential{"KubeconfigRejected", "kubeconfig: Unauthorized", true},
		},
		"Talos rejects the certificate (A12)": {
			at: now, refusal: &refusing{kube: apierrors.NewTimeoutError("x", 1), talos: status.Error(codes.Unavailable, rejected)},
			talos: credential{"TalosconfigRejected", "talosconfig: the server does not accept the client certificate", true},
		},
		"nothing answers": {at: now, refusal: &refusing{kube: apierrors.NewTimeoutError("x", 1), talos: status.Error(codes.Unavailable, "x")}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			role := row.role
			if role == "" {
				role = "os:admin"
			}
			both := secrets(t, role)
			if row.change != nil {
				row.change(both)
			}
			c := newClient(t, both[0], both[1])
			machines := talosfake.New()
			machines.Add("10.0.0.1", talos.Machine{NodeName: "cp-1", UUID: "u1"}, &talos.Etcd{MemberID: 1, Leader: 1})
			p := prober{
				credentials: &credentials.Store{Reader: c}, talos: machines, kube: kubefake.New(), clock: clocktesting.NewFakePassiveClock(row.at), lookup: endpoints("").lookup,
			}
			if row.refusal != nil {
				p.kube, p.talos = kubeProvider{refusingKube: refusingKube{err: row.refusal.kube}}, talosProvider{refusingTalos{err: row.refusal.talos}}
			}
			cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"}}
			facts := targets.Facts{Cluster: cluster, Machines: []v1alpha1.TalosMachine{recorded("c1-cp-1", "cp-1", "ControlPlane", "10.0.0.1", "u1")}}
			seen := p.probe(t.Context(), facts)
			g.Expect(seen.kubeconfig).To(Equal(row.kube))
			g.Expect(seen.talosconfig).To(Equal(row.talos))
			if row.refusal == nil {
				told, asked := seen.kubernetesVersion != "", seen.machines != nil
				g.Expect(told).To(Equal(!row.kube.unusable), "what is usable is used, whatever the other is")
				g.Expect(asked).To(Equal(!row.talos.unusable))
			}
		})
	}
}
