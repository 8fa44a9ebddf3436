// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/progress"
)

func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: name}, Spec: corev1.PodSpec{NodeName: "w-1"}}
	for _, c := range change {
		c(p)
	}
	return p
}

func ofDaemonSet(p *corev1.Pod) {
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", Controller: ptr.To(true)}}
}

func static(p *corev1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.mirror": "x"} }

func withEmptyDir(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
}

// evictions is an API with pods, which answers evictions as it is told. What is evicted is gone.
type evictions struct {
	*fake.Clientset

	mu      sync.Mutex
	evicted []string
}

func newEvictions(answer func(pod string) error, pods ...*corev1.Pod) *evictions {
	objects := []runtime.Object{node()}
	for _, p := range pods {
		objects = append(objects, p)
	}
	e := &evictions{Clientset: fake.NewClientset(objects...)}
	e.Resources = []*metav1.APIResourceList{
		{GroupVersion: "policy/v1"},
		{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods/eviction", Kind: "Eviction", Group: "policy", Version: "v1"}}},
	}
	e.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		eviction := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
		if err := answer(eviction.Name); err != nil {
			return true, nil, err
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.evicted = append(e.evicted, eviction.Name)
		return true, nil, e.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), eviction.Namespace, eviction.Name)
	})
	return e
}

func yes(string) error { return nil }

func (e *evictions) drain(ctx context.Context) error {
	return (&connection{clients: e, guard: func(context.Context) error { return nil }}).Drain(ctx, "w-1")
}

// Case D1: the hub drains itself, by evictions, which ask the budgets. Static pods and those of DaemonSets stay.
func TestCaseD1Drain(t *testing.T) {
	g := NewWithT(t)
	elsewhere := pod("elsewhere", func(p *corev1.Pod) { p.Spec.NodeName = "w-2" })
	e := newEvictions(yes, pod("bare"), pod("cache", withEmptyDir), pod("agent", ofDaemonSet), pod("static", static), elsewhere)
	// The fake API knows no field selectors; the real one lists the pods of one Node.
	e.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		g.Expect(action.(clienttesting.ListAction).GetListRestrictions().Fields.String()).To(Equal("spec.nodeName=w-1"))
		return true, &corev1.PodList{Items: []corev1.Pod{*pod("bare"), *pod("cache", withEmptyDir), *pod("agent", ofDaemonSet), *pod("static", static)}}, nil
	})
	e.PrependReactor("get", "daemonsets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
	g.Expect(e.drain(t.Context())).To(Succeed())
	g.Expect(e.evicted).To(ConsistOf("bare", "cache"))
}

// Case D12: an eviction that is forbidden will stay so. The drain fails at once, even if a budget keeps another pod.
func TestCaseD12ForbiddenEvictionFailsFast(t *testing.T) {
	g := NewWithT(t)
	e := newEvictions(func(name string) error {
		if name == "kept" {
			return apierrors.NewTooManyRequests("a budget keeps it", 0)
		}
		return apierrors.NewForbidden(corev1.Resource("pods"), name, errors.New("RBAC"))
	}, pod("bare"), pod("kept"))
	err := e.drain(t.Context())
	g.Expect(err).To(MatchError(`draining node w-1: evicting pod apps/bare: pods "bare" is forbidden: RBAC`))
	g.Expect(Classify(err)).To(BeEquivalentTo("Permanent"))
}

func TestFencedDrainStops(t *testing.T) {
	g := NewWithT(t)
	e := newEvictions(func(string) error { return errors.Join(guard.ErrNotAllowed, errors.New("the lock is gone")) }, pod("bare"))
	g.Expect(Classify(e.drain(t.Context()))).To(BeEquivalentTo("Interrupted"))
}

// A drain that a budget holds up ends with its context, and tells which pod stays.
func TestDrainEndsInTime(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	e := newEvictions(func(string) error {
		cancel()
		return apierrors.NewTooManyRequests("a budget keeps it", 0)
	}, pod("bare"))
	err := e.drain(ctx)
	g.Expect(err).To(MatchError("draining node w-1: kept by a disruption budget: pod apps/bare (a budget keeps it)"))
	g.Expect(Classify(err)).To(BeEquivalentTo("Retryable"))
}

// Where the kubelet is dead nobody confirms that a pod has ended.
func TestDrainOfAnUnreachableNode(t *testing.T) {
	asked := pod("asked", func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.NewTime(time.Now().Add(-time.Minute))) })
	for status, want := range map[corev1.ConditionStatus][]string{
		corev1.ConditionUnknown: {"bare"},
		corev1.ConditionFalse:   {"asked", "bare"},
	} {
		t.Run(string(status), func(t *testing.T) {
			g := NewWithT(t)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w-1"}}
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
			e := newEvictions(yes, pod("bare"), pod("asked"))
			g.Expect(e.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, "")).To(Succeed())
			e.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, &corev1.PodList{Items: []corev1.Pod{*asked, *pod("bare")}}, nil
			})
			g.Expect(e.drain(t.Context())).To(Succeed())
			g.Expect(e.evicted).To(ConsistOf(want))
		})
	}
}

func TestDrainHelper(t *testing.T) {
	g := NewWithT(t)
	helper := drainHelper(t.Context(), fake.NewClientset(), io.Discard)
	g.Expect(helper.EvictErrorRetryDelay).To(Equal(time.Second), "a budget that keeps a pod is not asked without a pause")
	g.Expect(helper.DisableEviction).To(BeFalse())
	g.Expect(helper.SkipWaitForDeleteTimeoutSeconds).To(BeZero())
	g.Expect(helper.Timeout).To(BeZero(), "without a deadline it has time")
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	g.Expect(drainTimeout(ctx)).To(BeNumerically("~", 57*time.Minute, time.Minute), "it ends before its context, to tell what stayed")
}

// A drain that a budget holds up says so while it goes on, and goes on until the budget lets it.
func TestDrainReportsWhatHoldsItUp(t *testing.T) {
	g := NewWithT(t)
	var mu sync.Mutex
	var reports []string
	ctx := progress.With(t.Context(), func(waitingFor string) {
		mu.Lock()
		defer mu.Unlock()
		reports = append(reports, waitingFor)
	})
	attempts, told := 0, "" // What was reported by the time of the second attempt.
	e := newEvictions(func(string) error {
		mu.Lock()
		defer mu.Unlock()
		attempts++
		if attempts == 1 {
			return apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		}
		told = strings.Join(reports[max(0, len(reports)-1):], "")
		return nil
	}, pod("bare"))
	g.Expect(e.drain(ctx)).To(Succeed())
	g.Expect(e.evicted).To(Equal([]string{"bare"}))
	g.Expect(told).To(And(
		Equal("kept by a disruption budget: pod apps/bare (Cannot evict pod as it would violate the pod's disruption budget.)"),
	))
}

// A guard that cannot find out ends the drain, but not the step: it is drained again.
func TestUndecidedDrainIsRetried(t *testing.T) {
	for name, cause := range map[string]error{
		"no answer":         errors.New("no answer"),
		"no token any more": apierrors.NewUnauthorized("who?"),
		"no right":          apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "c1-ichor-lock", errors.New("RBAC")),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEvictions(func(string) error { return fmt.Errorf("POST: %w: %w", guard.ErrUndecided, cause) }, pod("bare"))
			err := e.drain(t.Context())
			g.Expect(err).To(MatchError(ContainSubstring("whether the change is allowed is not known")))
			g.Expect(Classify(err)).To(BeEquivalentTo("Retryable"))
		})
	}
}

func nobody() string { return "" }

// The last thing that was said is kept for the error; everything is reported as it is said.
func TestLastWords(t *testing.T) {
	for name, row := range map[string]struct {
		writes  []string
		reports []string
		want    string
	}{
		"nothing":         {nil, nil, ""},
		"an empty line":   {[]string{"\n"}, nil, ""},
		"one line":        {[]string{"one\n"}, []string{"one"}, " (one)"},
		"two at once":     {[]string{"one\ntwo\n"}, []string{"two"}, " (two)"},
		"two in a row":    {[]string{"one\n", "two\n"}, []string{"one", "two"}, " (two)"},
		"and then no one": {[]string{"one\n", " \n"}, []string{"one"}, " (one)"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var reports []string
			w := &lastWords{ctx: progress.With(t.Context(), func(waitingFor string) { reports = append(reports, waitingFor) }), kept: nobody}
			silent := &lastWords{ctx: t.Context(), kept: nobody}
			for _, text := range row.writes {
				for _, to := range []*lastWords{w, silent} {
					g.Expect(to.Write([]byte(text))).To(Equal(len(text)), "a writer takes all that it is given")
				}
			}
			g.Expect(w.String()).To(Equal(row.want))
			g.Expect(silent.String()).To(Equal(row.want), "nobody needs to listen")
			g.Expect(reports).To(Equal(row.reports))
		})
	}
}

// Case D1: who reads the status of a drain that is held up learns which pods stay, and which budgets keep them, in one order.
func TestCaseD1KeptPodsAndTheirBudgets(t *testing.T) {
	g := NewWithT(t)
	keeps := func(budget string) error {
		err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget " + budget + " needs 1 healthy pods and has 1 currently"}}
		return err
	}
	evictor, note := &evictor{stop: func() {}}, func(e *evictor, pod string, err error) {
		e.note(&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: pod}}, err)
	}
	g.Expect(evictor.keptPods()).To(BeEmpty())
	note(evictor, "web-1", keeps("web"))
	note(evictor, "db-0", keeps("db"))
	note(evictor, "cache", nil)
	g.Expect(evictor.keptPods()).To(Equal("kept by a disruption budget: pod apps/db-0 (The disruption budget db needs 1 healthy pods and has 1 currently), " +
		"pod apps/web-1 (The disruption budget web needs 1 healthy pods and has 1 currently)"))
	note(evictor, "db-0", nil)
	note(evictor, "web-1", errors.New("no answer"))
	g.Expect(evictor.keptPods()).To(BeEmpty(), "what is evicted, or fails of something else, is not kept")
	g.Expect(evictor.refusal()).NotTo(HaveOccurred())
}

// Case D8: storage keeps what has to serve until the machine goes down with Cluster API's label; other values ask nothing.
func TestCaseD8PodsThatStay(t *testing.T) {
	labelled := func(value string, phase corev1.PodPhase) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Labels, p.Status.Phase = map[string]string{"cluster.x-k8s.io/drain": value}, phase
		}
	}
	for name, row := range map[string]struct {
		pod     *corev1.Pod
		evicted []string
		err     string
	}{
		"a pod":                    {pod("p"), []string{"p"}, ""},
		"to be skipped":            {pod("p", labelled("skip", "Running")), nil, ""},
		"another value":            {pod("p", labelled("Skip", "Running")), []string{"p"}, ""},
		"to be waited for":         {pod("p", labelled("wait-completed", "Running")), nil, `waiting for it to complete (label cluster.x-k8s.io/drain)`},
		"to be waited for, ended":  {pod("p", labelled("wait-completed", "Succeeded")), []string{"p"}, ""},
		"to be waited for, failed": {pod("p", labelled("wait-completed", "Failed")), []string{"p"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEvictions(yes, row.pod)
			err := e.drain(t.Context())
			if row.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(row.err)))
				g.Expect(Classify(err)).To(BeEquivalentTo("Retryable"), "the step waits, within its deadline")
			}
			g.Expect(e.evicted).To(Equal(row.evicted))
		})
	}
}
