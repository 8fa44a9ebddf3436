// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/harness"
	"ichor.maesh.dev/hub/test/sim/fault"
)

// mostUnfinished bounds how many operations of a cluster are unfinished at once: one works, the others wait.
const mostUnfinished = 4

// player plays the script of one cluster.
type player struct {
	harness *harness.Harness
	log     *log
	cluster string
	moves   []Move

	orders int            // How many operations were ordered; it names the next one.
	faults map[int]*force // All faults, by their number in the script.
	last   string         // The version of the last upgrade.
}

// force is a fault and the time in which it was in force.
type force struct {
	fault    fault.Fault
	id       string
	from, to time.Time // to is zero while it is.
}

// play makes every move at its time.
func (p *player) play(ctx context.Context, began time.Time) error {
	for _, move := range p.moves {
		if !until(ctx, began.Add(move.At)) {
			return ctx.Err()
		}
		did, err := p.do(ctx, move)
		switch {
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			did = "too late: " + err.Error()
		case err != nil:
			return fmt.Errorf("cluster %s, %s: %w", p.cluster, move, err)
		}
		p.log.note("%s %s: %s", p.cluster, move, did)
	}
	return nil
}

// until waits for a time, and says whether it came before the context ended.
func until(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *player) do(ctx context.Context, m Move) (did string, err error) {
	return map[Action]func(context.Context, Move) (string, error){
		Upgrade: p.upgrade, Reboot: p.act, Kubernetes: p.kubernetes, RollOut: p.rollOut, RestartKubelet: p.act, Defragment: p.act, Retry: p.retry, Delete: p.remove, Limit: p.limit, Pause: p.pause, Resume: p.resume,
		PauseCluster: p.pauseCluster, UnpauseCluster: p.pauseCluster, Hold: p.hold, Unhold: p.hold,
		Inject: p.inject, Clear: p.clear, PowerOff: p.power, PowerOn: p.power,
	}[m.Do](ctx, m)
}

func (p *player) upgrade(ctx context.Context, m Move) (string, error) {
	if err := p.declare(ctx, m.Version); err != nil {
		return "", err
	}
	return p.order(ctx, most(m, v1alpha1.TalosOperationSpec{Kind: v1alpha1.TalosKind}))
}

func (p *player) kubernetes(ctx context.Context, m Move) (string, error) {
	err := p.ask(ctx, func(spec *v1alpha1.TalosClusterSpec) { spec.KubernetesVersion = m.Version })
	if err != nil {
		return "", err
	}
	return p.order(ctx, most(m, v1alpha1.TalosOperationSpec{Kind: v1alpha1.KubernetesKind}))
}

func (p *player) rollOut(ctx context.Context, m Move) (string, error) {
	err := p.ask(ctx, func(spec *v1alpha1.TalosClusterSpec) {
		spec.MachineConfig = &v1alpha1.MachineConfigSpec{Patches: []v1alpha1.MachineConfigPatch{{Name: "chaos", Patch: m.Version}}}
	})
	if err != nil {
		return "", err
	}
	return p.order(ctx, most(m, v1alpha1.TalosOperationSpec{Kind: v1alpha1.ConfigKind}))
}

// most is an order with the maxUnavailable of a move.
func most(m Move, spec v1alpha1.TalosOperationSpec) v1alpha1.TalosOperationSpec {
	if m.Most > 0 {
		spec.MaxUnavailable = ptr.To(intstr.FromInt(m.Most))
	}
	return spec
}

// declare writes what the next upgrades bring the cluster to, whatever goes on there.
func (p *player) declare(ctx context.Context, version string) error {
	return p.ask(ctx, func(spec *v1alpha1.TalosClusterSpec) { spec.TalosVersion = version })
}

// ask changes what the spec of the cluster asks for.
func (p *player) ask(ctx context.Context, change func(*v1alpha1.TalosClusterSpec)) error {
	cluster := &v1alpha1.TalosCluster{}
	if err := p.harness.Client.Get(ctx, client.ObjectKey{Namespace: harness.Namespace, Name: p.cluster}, cluster); err != nil {
		return err
	}
	before := cluster.DeepCopy()
	change(&cluster.Spec)
	return p.harness.Client.Patch(ctx, cluster, client.MergeFrom(before))
}

// act orders an action of kind node.
func (p *player) act(ctx context.Context, m Move) (string, error) {
	node := map[Action]v1alpha1.NodeParameters{
		Reboot:         {Machine: p.machine(m.Node), Action: v1alpha1.RebootAction},
		RestartKubelet: {Machine: p.machine(m.Node), Action: v1alpha1.RestartServiceAction, Service: "kubelet"},
		Defragment:     {Action: v1alpha1.EtcdDefragAction},
	}[m.Do]
	return p.order(ctx, v1alpha1.TalosOperationSpec{Kind: v1alpha1.NodeKind, Node: &node})
}

// machine is the name of a node's TalosMachine.
func (p *player) machine(node string) string { return p.cluster + "-" + strings.ToLower(node) }

// order creates an operation as kubectl would: whatever is unfinished, it queues.
func (p *player) order(ctx context.Context, spec v1alpha1.TalosOperationSpec) (string, error) {
	unfinished, err := p.unfinished(ctx)
	if err != nil || len(unfinished) >= mostUnfinished {
		return "enough are there", err
	}
	return p.create(ctx, spec)
}

func (p *player) create(ctx context.Context, spec v1alpha1.TalosOperationSpec) (string, error) {
	spec.ClusterName = p.cluster
	p.orders++
	op := &v1alpha1.TalosOperation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: harness.Namespace, Name: fmt.Sprintf("%s-%s-%d", p.cluster, spec.Kind, p.orders),
			Labels: map[string]string{clusterv1.ClusterNameLabel: p.cluster},
		},
		Spec: spec,
	}
	return op.Name, p.harness.Client.Create(ctx, op)
}

// unfinished are the operations that are not over and not about to go, oldest first.
func (p *player) unfinished(ctx context.Context) ([]v1alpha1.TalosOperation, error) {
	list := &v1alpha1.TalosOperationList{}
	err := p.harness.Client.List(ctx, list, client.InNamespace(harness.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: p.cluster})
	if err != nil {
		return nil, err
	}
	left := slices.DeleteFunc(list.Items, func(op v1alpha1.TalosOperation) bool { return op.Completed() || !op.DeletionTimestamp.IsZero() })
	slices.SortFunc(left, func(a, b v1alpha1.TalosOperation) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return left, nil
}

// change picks an operation and patches it.
func (p *player) change(ctx context.Context, m Move, which func(*v1alpha1.TalosOperation) bool, change func(*v1alpha1.TalosOperation)) (string, error) {
	op, err := p.pick(ctx, m, which)
	if err != nil || op == nil {
		return "there is none", err
	}
	before := op.DeepCopy()
	change(op)
	return op.Name, p.harness.Client.Patch(ctx, op, client.MergeFrom(before))
}

func (p *player) pick(ctx context.Context, m Move, which func(*v1alpha1.TalosOperation) bool) (*v1alpha1.TalosOperation, error) {
	list, err := p.unfinished(ctx)
	list = slices.DeleteFunc(list, func(op v1alpha1.TalosOperation) bool { return !which(&op) })
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[int(m.Pick)%len(list)], nil
}

func anyOperation(*v1alpha1.TalosOperation) bool { return true }

func failed(op *v1alpha1.TalosOperation) bool { return op.Status.FailureReason != "" }

// askForRetry asks to run what failed again.
func askForRetry(op *v1alpha1.TalosOperation) {
	metav1.SetMetaDataAnnotation(&op.ObjectMeta, v1alpha1.RetryAnnotation, v1alpha1.RetryRequested)
}

func (p *player) retry(ctx context.Context, m Move) (string, error) {
	return p.change(ctx, m, failed, askForRetry)
}

func (p *player) remove(ctx context.Context, m Move) (string, error) {
	op, err := p.pick(ctx, m, anyOperation)
	if err != nil || op == nil {
		return "there is none", err
	}
	return op.Name, p.harness.Client.Delete(ctx, op)
}

func (p *player) limit(ctx context.Context, m Move) (string, error) {
	return p.change(ctx, m, anyOperation, func(op *v1alpha1.TalosOperation) { op.Spec.MaxUnavailable = ptr.To(intstr.FromInt(m.Most)) })
}

func (p *player) pause(ctx context.Context, m Move) (string, error) {
	return p.change(ctx, m, anyOperation, func(op *v1alpha1.TalosOperation) { op.Spec.Paused = ptr.To(true) })
}

func (p *player) resume(ctx context.Context, _ Move) (string, error) {
	list, err := p.unfinished(ctx)
	if err != nil {
		return "", err
	}
	var did []string
	for i := range list {
		if op := &list[i]; op.Paused() {
			before := op.DeepCopy()
			op.Spec.Paused = nil
			if err := client.IgnoreNotFound(p.harness.Client.Patch(ctx, op, client.MergeFrom(before))); err != nil {
				return "", err
			}
			did = append(did, op.Name)
		}
	}
	return strings.Join(did, ", "), nil
}

func (p *player) pauseCluster(ctx context.Context, m Move) (string, error) {
	cluster := &clusterv1.Cluster{}
	if err := p.harness.Client.Get(ctx, client.ObjectKey{Namespace: harness.Namespace, Name: p.cluster}, cluster); err != nil {
		return "", err
	}
	before := cluster.DeepCopy()
	cluster.Spec.Paused = ptr.To(m.Do == PauseCluster)
	return "", p.harness.Client.Patch(ctx, cluster, client.MergeFrom(before))
}

func (p *player) hold(ctx context.Context, m Move) (string, error) {
	machine := &v1alpha1.TalosMachine{}
	if err := p.harness.Client.Get(ctx, client.ObjectKey{Namespace: harness.Namespace, Name: p.machine(m.Node)}, machine); err != nil {
		return "", err
	}
	note := ""
	if m.Do == Hold {
		note = "chaos"
	}
	_, err := p.harness.Service.SetHold(ctx, machine, m.Do == Hold, note)
	return "", err
}

func (p *player) inject(_ context.Context, m Move) (string, error) {
	id, err := p.harness.Fault(m.Fault)
	if err != nil {
		return "", err
	}
	p.faults[m.Number] = &force{fault: m.Fault, id: id, from: time.Now()}
	return id, nil
}

func (p *player) clear(_ context.Context, m Move) (string, error) {
	f := p.faults[m.Number]
	if !f.to.IsZero() {
		return "it is over", nil
	}
	p.harness.Clear(f.id)
	f.to = time.Now()
	return f.id, nil
}

func (p *player) power(_ context.Context, m Move) (string, error) {
	return "", p.harness.Fleet.Power(p.cluster, m.Node, m.Do == PowerOn)
}

// takeBack ends all that the script may have left in force.
func (p *player) takeBack(ctx context.Context) error {
	for number := range p.faults {
		if _, err := p.clear(ctx, Move{Number: number}); err != nil {
			return err
		}
	}
	for _, node := range p.harness.Fleet.Cluster(p.cluster).Nodes() {
		node.PowerOn()
		if _, err := p.hold(ctx, Move{Do: Unhold, Node: node.Name()}); err != nil {
			return err
		}
	}
	if _, err := p.resume(ctx, Move{}); err != nil {
		return err
	}
	_, err := p.pauseCluster(ctx, Move{Do: UnpauseCluster})
	return err
}
