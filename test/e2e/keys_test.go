// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
)

// aged was made by a Talos whose machine configs hold one key, and runs one whose configs hold more.
var aged = sim.ClusterSpec{Name: "aged", ControlPlanes: 3, Workers: 1, TalosVersion: "v1.13.6", Mixed: []string{"v1.14.1"}}

// keyed was made by a Talos whose machine configs hold more than one key.
var keyed = sim.ClusterSpec{Name: "keyed", ControlPlanes: 3, Workers: 1, TalosVersion: "v1.14.1"}

// writers is how many Secrets a test makes.
const writers = 40

// secrets makes Secrets.
func (w *world) secrets(ctx context.Context, client kubernetes.Interface) {
	GinkgoHelper()
	for i := range writers {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("s-%02d", i)}, Data: map[string][]byte{"a": fmt.Appendf(nil, "%02d", i)}}
		_, err := client.CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
}

// readsSecrets expects them to be what they were.
func (w *world) readsSecrets(ctx context.Context, client kubernetes.Interface) {
	GinkgoHelper()
	list, err := client.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	found := 0
	for i := range list.Items {
		if name := list.Items[i].Name; strings.HasPrefix(name, "s-") {
			found++
			Expect("s-" + string(list.Items[i].Data["a"])).To(Equal(name))
		}
	}
	Expect(found).To(Equal(writers))
}

// takes says whether a cluster takes a token.
func takes(ctx context.Context, client kubernetes.Interface, token string) func() (bool, error) {
	return func() (bool, error) {
		review, err := client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return review.Status.Authenticated, nil
	}
}

// seals are the names of the keys that the Secrets of a cluster are encrypted with in etcd.
func (w *world) seals(name string) map[string]int {
	names := map[string]int{}
	for _, cluster := range w.Fleet.Clusters() {
		if cluster.Name() == name {
			for _, key := range cluster.Secrets() {
				parts := strings.Split(key.Prefix, ":") // Such as k8s:enc:secretbox:v1:key2: and nothing behind it.
				names[parts[max(len(parts)-2, 0)]]++
			}
		}
	}
	return names
}

// reaches waits until an operation is in a stage.
func (w *world) reaches(ctx context.Context, op *v1alpha1.TalosOperation, stage string) {
	GinkgoHelper()
	Eventually(w.get(ctx, op)).WithContext(ctx).WithTimeout(2 * time.Minute).Should(HaveField("Status.Stage", stage))
}

var _ = Describe("Rotating the keys of a cluster", func() {
	It("replaces both, with the hub killed in every pass, and tokens of old good until the drop (H8)", func(ctx SpecContext) {
		w := install(ctx, aged)
		client := w.kube("aged")
		w.secrets(ctx, client)
		Expect(w.seals("aged")).To(HaveKeyWithValue("key2", BeNumerically(">=", writers)))
		old, err := client.CoreV1().ServiceAccounts("kube-system").CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		robot := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "robot", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}}, Type: corev1.SecretTypeServiceAccountToken}
		_, err = client.CoreV1().Secrets("default").Create(ctx, robot, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())

		By("it says what it would do")
		plan := w.ichor(ctx, 0, "operation", "plan", "rotate-keys", "aged", "--key", "both").Out
		Expect(plan).To(And(ContainSubstring("keys change"), ContainSubstring("every token that it signed is void"), ContainSubstring("up to 7 times")))
		Expect(w.ichor(ctx, 2, "cluster", "rotate-keys", "aged", "--key", "both", "--yes").Err).To(ContainSubstring("add --confirm aged"))
		w.ichor(ctx, 0, "cluster", "rotate-keys", "aged", "--key", "both", "--confirm", "aged")
		op, err := w.operation(ctx, "aged")
		Expect(err).NotTo(HaveOccurred())
		for _, stage := range []string{"Migrate", "AcceptServiceAccount", "SwapServiceAccount"} {
			w.reaches(ctx, op, stage)
			w.kill(ctx)
		}

		By("it waits for who has old tokens, and says who that is")
		w.reaches(ctx, op, "RefreshTokens")
		Eventually(func() string { return w.ichor(ctx, 0, "operation", "get", op.Name).Out }).WithContext(ctx).Should(And(
			ContainSubstring("when pods have new tokens"), ContainSubstring("default/robot"), ContainSubstring("ichor operation confirm "+op.Name)))
		Expect(takes(ctx, client, old.Status.Token)()).To(BeTrue(), "both keys are good")
		w.ichor(ctx, 0, "operation", "confirm", op.Name)
		w.reaches(ctx, op, "DropServiceAccount")
		w.kill(ctx)
		for _, stage := range []string{"AcceptSecretbox", "SwapSecretbox", "Rewrite", "DropSecretbox"} {
			w.reaches(ctx, op, stage)
			Expect(takes(ctx, client, old.Status.Token)()).To(BeFalse(), "the old key is gone")
			w.kill(ctx)
		}
		w.ichor(ctx, 0, "operation", "watch", op.Name)

		By("nothing has the old keys, and nothing is lost")
		Expect(w.seals("aged")).To(HaveLen(1))
		Expect(w.seals("aged")).NotTo(HaveKey("key2"))
		w.readsSecrets(ctx, client)
		fresh, err := client.CoreV1().ServiceAccounts("kube-system").CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(takes(ctx, client, fresh.Status.Token)()).To(BeTrue())
		Expect(w.order("aged", "MachineService/Reboot")).To(BeEmpty())
		Expect(w.order("aged", "kube POST pods/eviction")).To(BeEmpty())
		Eventually(w.Unavailable).WithContext(ctx).Should(BeEmpty())
		done, err := w.get(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		Expect(done.Status.Units).To(ContainElement(And(HaveField("Name", "Rewrite"), HaveField("Progress.Done", BeNumerically(">=", writers)))))
	}, SpecTimeout(8*time.Minute))

	It("restarts an API server that was restarted before its files were written", func(ctx SpecContext) {
		w := install(ctx, keyed)
		client := w.kube("keyed")
		w.secrets(ctx, client)
		_, err := w.Fleet.Inject(fault.Fault{Name: fault.SecretsLate, Cluster: "keyed", Node: "cp-2", Times: 1})
		Expect(err).NotTo(HaveOccurred())
		w.ichor(ctx, 0, "cluster", "rotate-keys", "keyed", "--key", "secretbox", "--confirm", "keyed", "--follow")
		op, err := w.operation(ctx, "keyed")
		Expect(err).NotTo(HaveOccurred())
		Expect(op.Machine("keyed-cp-2").Steps).To(ContainElement(HaveField("Step", v1alpha1.RestartingStep)))
		Expect(op.Machine("keyed-cp-1").Steps).NotTo(ContainElement(HaveField("Step", v1alpha1.RestartingStep)))
		Expect(w.seals("keyed")).To(HaveLen(1))
		Expect(w.seals("keyed")).NotTo(HaveKey("key2"))
		w.readsSecrets(ctx, client)
	}, SpecTimeout(8*time.Minute))

	It("does not begin where there is no overlap, and says what to do (H8)", func(ctx SpecContext) {
		w := install(ctx, one)
		Expect(w.ichor(ctx, 1, "cluster", "rotate-keys", "one", "--key", "service-account", "--confirm", "one").Err).To(And(
			ContainSubstring("KeyOverlap"), ContainSubstring("ichor upgrade talos v1.14.0")))
	}, SpecTimeout(2*time.Minute))
})
