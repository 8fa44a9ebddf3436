// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/hub/standalone/pki"
	"ichor.maesh.dev/hub/test/framework"
)

const (
	nodeName = "stand-in"

	// tick is how often the stand-in looks at its pods.
	tick = 200 * time.Millisecond
)

// kubelet stands for a scheduler and a kubelet: it takes every pod, runs what its only container runs as a process, with the rights of its
// ServiceAccount, and tells the API server what becomes of it.
type kubelet struct {
	*cluster

	// images are the binaries that images stand for, by tag.
	images map[string]string

	certificate pki.SelfSigned

	mu   sync.Mutex
	pods map[string]*runningPod

	// held are prefixes of the names of pods that are not begun with yet.
	held []string
}

// runningPod is a pod, and the process that it is.
type runningPod struct {
	name, address, log, last string

	cmd   *exec.Cmd
	told  bool // To end: a second signal would cut that short.
	ended chan struct{}
	err   error
}

func (k *kubelet) hold(prefixes ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held = prefixes
}

func (k *kubelet) holds(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.held, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// work looks at all pods, again and again, until the test is over. It says what it could not do.
func (k *kubelet) work(say func(error)) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		list, err := k.kube.CoreV1().Pods(namespace).List(k.ctx, metav1.ListOptions{})
		if err == nil {
			for i := range list.Items {
				if err := k.sync(&list.Items[i]); err != nil && k.ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
					say(fmt.Errorf("pod %s: %w", list.Items[i].Name, err))
				}
			}
		}
		select {
		case <-ticker.C:
		case <-k.ctx.Done():
			k.endAll()
			return
		}
	}
}

func (k *kubelet) endAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// sync takes a pod one step further.
func (k *kubelet) sync(pod *corev1.Pod) error {
	pods := k.kube.CoreV1().Pods(pod.Namespace)
	running := k.podOf(pod.Name)
	over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch {
	case pod.DeletionTimestamp != nil && (running == nil || running.over()):
		return pods.Delete(k.ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	case pod.DeletionTimestamp != nil && running.told:
		return nil
	case pod.DeletionTimestamp != nil:
		running.told = true
		return running.cmd.Process.Signal(syscall.SIGTERM)
	case over:
		return nil
	case pod.Spec.NodeName == "":
		return pods.Bind(k.ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: nodeName}}, metav1.CreateOptions{})
	case running == nil && k.holds(pod.Name):
		return nil
	case running == nil, running.over() && pod.Spec.RestartPolicy == corev1.RestartPolicyAlways:
		return k.start(pod)
	}
	return k.tell(pod, running)
}

func (k *kubelet) podOf(name string) *runningPod {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pods[name]
}

func (p *runningPod) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// start starts what the container of a pod runs, on addresses of its own.
func (k *kubelet) start(pod *corev1.Pod) error {
	container := pod.Spec.Containers[0]
	binary := k.images[container.Image[strings.LastIndex(container.Image, ":")+1:]]
	if binary == "" {
		return k.waits(pod, "ErrImagePull", "there is no image "+container.Image)
	}
	kubeconfig, err := k.kubeconfig(pod.Namespace, pod.Spec.ServiceAccountName, pod.Name)
	if err != nil {
		return err
	}
	p := &runningPod{name: pod.Name, address: k.address(), log: filepath.Join(k.dir, pod.Name+".log"), last: filepath.Join(k.dir, pod.Name+".last"), ended: make(chan struct{})}
	here := map[string]string{
		"--listen": p.address, "--metrics-bind-address": "0", "--tls-cert-file": k.certificate.Pair, "--tls-private-key-file": k.certificate.Pair, "--termination-log": p.last,
	}
	args := slices.Clone(container.Args)
	for i, argument := range args {
		flag, _, _ := strings.Cut(argument, "=")
		if instead, ok := here[flag]; ok {
			args[i] = flag + "=" + instead
		}
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	p.cmd = exec.Command(binary, append(args, "--kubeconfig", kubeconfig)...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env, p.cmd.Dir = log, log, []string{}, "/" // A pod has no home, and no way to write anywhere.
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() {
		p.err = p.cmd.Wait()
		_ = log.Close()
		close(p.ended)
	}()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods[pod.Name] = p
	return nil
}

// waits says what a container waits for.
func (k *kubelet) waits(pod *corev1.Pod, reason, message string) error {
	pod.Status.Phase = corev1.PodPending
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
	}}
	return k.write(pod)
}

// tell says what a process does.
func (k *kubelet) tell(pod *corev1.Pod, p *runningPod) error {
	status := corev1.ContainerStatus{Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image}
	pod.Status.Phase = corev1.PodRunning
	switch {
	case p.over() && p.err == nil:
		pod.Status.Phase = corev1.PodSucceeded
	case p.over():
		pod.Status.Phase = corev1.PodFailed
	case pod.Spec.RestartPolicy == corev1.RestartPolicyAlways:
		status.Ready = k.ready(p)
	default:
		status.Ready = true
	}
	if p.over() {
		last, _ := os.ReadFile(p.last)
		status.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: int32(p.cmd.ProcessState.ExitCode()), Message: string(last), FinishedAt: metav1.Now()}
	} else {
		status.State.Running = &corev1.ContainerStateRunning{}
	}
	ready := corev1.ConditionFalse
	if status.Ready {
		ready = corev1.ConditionTrue
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == ready && !p.over() {
			return nil // It is known.
		}
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()}}
	return k.write(pod)
}

func (k *kubelet) write(pod *corev1.Pod) error {
	_, err := k.kube.CoreV1().Pods(pod.Namespace).UpdateStatus(k.ctx, pod, metav1.UpdateOptions{})
	return err
}

// ready asks a hub as its readiness probe does.
func (k *kubelet) ready(p *runningPod) bool {
	ctx, cancel := context.WithTimeout(k.ctx, 3*time.Second)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true} //nolint:gosec // Probes look at no certificate.
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+p.address+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// kill ends the process of a pod as kill -9 does. The pod stays, and its process is started again.
func (k *kubelet) kill(prefix string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, p := range k.pods {
		if strings.HasPrefix(name, prefix) && !p.over() {
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
	}
}

// logs are the ends of what all pods have logged, for a test that fails.
func (k *kubelet) logs() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all strings.Builder
	for name, p := range k.pods {
		text, _ := os.ReadFile(p.log)
		fmt.Fprintf(&all, "== %s\n%s\n", name, text[max(0, len(text)-3000):])
	}
	return all.String()
}

// binaryOf is a binary of the hub in some version.
func binaryOf(c *cluster, name string) string {
	path, err := framework.Binary(name)
	c.Expect(err).NotTo(HaveOccurred())
	return path
}
