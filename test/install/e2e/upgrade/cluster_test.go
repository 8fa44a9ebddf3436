// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"ichor.maesh.dev/hub/test/framework"
)

// adminToken is the administrator's.
const adminToken = "administrator"

// startWithin is how long the API server may take until it serves, on few processors that others use as well.
const startWithin = 3 * time.Minute

// cluster is a real API server with real controllers of Jobs, Deployments and ReplicaSets. It has no nodes.
type cluster struct {
	*WithT

	ctx    context.Context
	dir    string
	host   string // Where the API server is.
	config *rest.Config
	kube   kubernetes.Interface
}

// startCluster starts it.
func startCluster(ctx context.Context, g *WithT, dir string, cleanup func(func())) *cluster {
	c := &cluster{WithT: g, ctx: ctx, dir: dir}
	etcd, peer := c.address(), c.address()
	c.write("etcd.yaml", map[string]any{
		"name": "test", "data-dir": filepath.Join(dir, "etcd"), "unsafe-no-fsync": true, "log-level": "error", "log-outputs": []string{"stderr"},
		"listen-client-urls": "http://" + etcd, "advertise-client-urls": "http://" + etcd,
		"listen-peer-urls": "http://" + peer, "initial-advertise-peer-urls": "http://" + peer, "initial-cluster": "test=http://" + peer,
	})
	c.run(cleanup, "etcd", "--config-file", filepath.Join(dir, "etcd.yaml"))

	c.host = c.address()
	_, port, _ := strings.Cut(c.host, ":")
	signing := c.signingKey()
	c.Expect(os.WriteFile(filepath.Join(dir, "tokens.csv"), []byte(adminToken+`,admin,admin,"system:masters"`+"\n"), 0o600)).To(Succeed())
	c.run(cleanup, "--etcd-servers=http://"+etcd, "--cert-dir="+filepath.Join(dir, "pki"), "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port="+port,
		"--token-auth-file="+filepath.Join(dir, "tokens.csv"), "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+signing, "--service-account-signing-key-file="+signing,
		"--disable-admission-plugins=TaintNodesByCondition")
	c.config = c.access(adminToken)
	var err error
	c.kube, err = kubernetes.NewForConfig(c.config)
	c.Expect(err).NotTo(HaveOccurred())
	c.Eventually(func() error {
		_, err := c.kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		return err
	}).WithContext(ctx).WithTimeout(startWithin).WithPolling(100 * time.Millisecond).Should(Succeed())
	c.control()
	return c
}

func (c *cluster) address() string {
	address, err := framework.FreeAddress(c.ctx)
	c.Expect(err).NotTo(HaveOccurred())
	return address
}

func (c *cluster) write(name string, content any) {
	text, err := yaml.Marshal(content)
	c.Expect(err).NotTo(HaveOccurred())
	c.Expect(os.WriteFile(filepath.Join(c.dir, name), text, 0o600)).To(Succeed())
}

// run runs the binary of the API server, which is that of etcd as well, until the test is over.
func (c *cluster) run(cleanup func(func()), args ...string) {
	binary, err := framework.Binary("kube-apiserver")
	c.Expect(err).NotTo(HaveOccurred())
	log, err := os.Create(filepath.Join(c.dir, strings.Trim(args[0][:4], "-")+".log"))
	c.Expect(err).NotTo(HaveOccurred())
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Expect(cmd.Start()).To(Succeed())
	cleanup(func() {
		_ = cmd.Process.Kill() // All that it knows goes with the directory.
		_ = cmd.Wait()
		_ = log.Close()
	})
}

// signingKey is the file with the key that signs tokens of ServiceAccounts.
func (c *cluster) signingKey() string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	c.Expect(err).NotTo(HaveOccurred())
	der, err := x509.MarshalECPrivateKey(key)
	c.Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(c.dir, "signing.key")
	c.Expect(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)).To(Succeed())
	return path
}

// access is that of whoever has a token. The server's certificate signs itself.
func (c *cluster) access(token string) *rest.Config {
	return &rest.Config{Host: "https://" + c.host, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: -1}
}

// control runs the controllers until the test is over.
func (c *cluster) control() {
	shared := informers.NewSharedInformerFactory(c.kube, 0)
	core, apps, batch := shared.Core().V1(), shared.Apps().V1(), shared.Batch().V1()
	jobs, err := job.NewController(c.ctx, c.kube, core.Pods(), batch.Jobs(), nil, nil)
	c.Expect(err).NotTo(HaveOccurred())
	deployments, err := deployment.NewDeploymentController(c.ctx, apps.Deployments(), apps.ReplicaSets(), core.Pods(), c.kube)
	c.Expect(err).NotTo(HaveOccurred())
	sets := replicaset.NewReplicaSetController(c.ctx, apps.ReplicaSets(), core.Pods(), c.kube, replicaset.BurstReplicas)
	for _, run := range []func(context.Context, int){jobs.Run, deployments.Run, sets.Run} {
		go run(c.ctx, 2)
	}
	shared.Start(c.ctx.Done())
}

// kubeconfig writes the access of a ServiceAccount, as its pods have it.
func (c *cluster) kubeconfig(namespace, account, name string) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](7200)}}
	answer, err := c.kube.CoreV1().ServiceAccounts(namespace).CreateToken(c.ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("making a token of ServiceAccount %s: %w", account, err)
	}
	access := api.NewConfig()
	access.Clusters["pod"] = &api.Cluster{Server: c.config.Host, InsecureSkipTLSVerify: true}
	access.AuthInfos["pod"] = &api.AuthInfo{Token: answer.Status.Token}
	access.Contexts["pod"] = &api.Context{Cluster: "pod", AuthInfo: "pod", Namespace: namespace}
	access.CurrentContext = "pod"
	path := filepath.Join(c.dir, name+".kubeconfig")
	return path, clientcmd.WriteToFile(*access, path)
}
