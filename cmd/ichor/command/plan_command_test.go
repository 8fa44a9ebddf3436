// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
	requests "ichor.maesh.dev/hub/test/service/table"
)

// recorder keeps the orders that reach a hub.
type recorder struct{ orders []*pb.OperationOrder }

func (r *recorder) note(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		if create, ok := request.Any().(*pb.CreateOperationRequest); ok {
			r.orders = append(r.orders, create.GetOrder())
		}
		return next(ctx, request)
	}
}

// words are those of a command line, as a shell reads it.
func words(t *testing.T, command string) []string {
	t.Helper()
	out, err := exec.Command("sh", "-c", `printf '%s\000' `+command).Output()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// The command in a plan is one that this command line understands, and it orders what was planned.
func TestCommandOfAPlan(t *testing.T) {
	recorded := &recorder{}
	differing := func(name string, role v1alpha1.MachineRole) *v1alpha1.TalosMachine {
		m := requests.Machine(name, role)
		m.Status.Config = &v1alpha1.MachineConfigStatus{SpecHash: (&v1alpha1.TalosCluster{}).MachineConfigHash(), Effect: v1alpha1.ConfigEffectLive}
		return m
	}
	server := requests.NewWorld(differing("c1-w-1", v1alpha1.WorkerRole), differing("c1-cp-1", v1alpha1.ControlPlaneRole), requests.StoredSnapshot(5*512+32)).Server()
	mux := http.NewServeMux()
	mux.Handle(ichorv1alpha1connect.NewOperationServiceHandler(server, connect.WithInterceptors(connect.UnaryInterceptorFunc(recorded.note))))
	mux.Handle(ichorv1alpha1connect.NewClusterServiceHandler(server))
	mux.Handle(ichorv1alpha1connect.NewHubServiceHandler(server))
	serving := httptest.NewServer(mux)
	t.Cleanup(serving.Close)
	service := ichorv1alpha1connect.NewOperationServiceClient(serving.Client(), serving.URL)

	node := func(mode string) *pb.OperationParameters {
		return &pb.OperationParameters{Parameters: &pb.OperationParameters_Node{Node: &pb.NodeParameters{Machine: "c1-w-1", Action: "Reboot", RebootMode: mode}}}
	}
	power := func(action, snapshot string) *pb.OperationParameters {
		return &pb.OperationParameters{Parameters: &pb.OperationParameters_Shutdown{Shutdown: &pb.ShutdownParameters{Action: action, Snapshot: snapshot}}}
	}
	restored := func(snapshot, safety, integrity string) *pb.OperationParameters {
		return &pb.OperationParameters{Parameters: &pb.OperationParameters_EtcdRestore{EtcdRestore: &pb.EtcdRestoreParameters{
			SnapshotName: snapshot, SafetySnapshot: safety, Integrity: integrity,
		}}}
	}
	for name, order := range map[string]*pb.OperationOrder{
		"a restore":               {Kind: pb.OperationKind_OPERATION_KIND_ETCD_RESTORE, Parameters: restored("s1", "None", "")},
		"a restore of a raw copy": {Kind: pb.OperationKind_OPERATION_KIND_ETCD_RESTORE, Parameters: restored("s1", "None", "RawCopy")},
		"an upgrade":              {Kind: pb.OperationKind_OPERATION_KIND_TALOS, Target: &pb.OperationTarget{TalosVersion: "v1.14.1"}},
		"an upgrade with all that there is": {
			Kind: pb.OperationKind_OPERATION_KIND_TALOS, Target: &pb.OperationTarget{TalosVersion: "v1.14.1", SchematicId: strings.Repeat("a", 64)},
			MaxUnavailable: "50%", Overrides: []*pb.GateOverride{{Gate: "WorkersAvailable", Reason: "it's a = test; of $HOME"}},
		},
		"a roll-out": {Kind: pb.OperationKind_OPERATION_KIND_CONFIG, MaxUnavailable: "2", Parameters: &pb.OperationParameters{
			Parameters: &pb.OperationParameters_Config{Config: &pb.ConfigParameters{Machines: []string{"c1-w-1", "c1-cp-1"}}}}},
		"a reboot": {Kind: pb.OperationKind_OPERATION_KIND_NODE, Parameters: node("")},
		"a stop": {
			Kind: pb.OperationKind_OPERATION_KIND_SHUTDOWN, Parameters: power("Stop", "None"), MaxUnavailable: "2",
		},
		"an upgrade of Kubernetes": {
			Kind: pb.OperationKind_OPERATION_KIND_KUBERNETES, Target: &pb.OperationTarget{KubernetesVersion: "v1.36.1"}, MaxUnavailable: "2",
			Overrides: []*pb.GateOverride{{Gate: "NodesReady", Reason: "it was tried"}},
		},
		"a reboot of some kind": {Kind: pb.OperationKind_OPERATION_KIND_NODE, Parameters: node("PowerCycle")},
		"a shutdown":            ofNode(&pb.NodeParameters{Machine: "c1-w-1", Action: "Shutdown"}),
		"a service":             ofNode(&pb.NodeParameters{Machine: "c1-w-1", Action: "RestartService", Service: "ext-tools"}),
		"every etcd member":     ofNode(&pb.NodeParameters{Action: "EtcdDefrag", Alarms: "Disarm"}),
		"one etcd member":       ofNode(&pb.NodeParameters{Machine: "c1-cp-1", Action: "EtcdDefrag"}),
		"a leadership":          ofNode(&pb.NodeParameters{Machine: "c1-cp-1", Action: "EtcdForfeitLeadership"}),
		"a reset":               ofNode(&pb.NodeParameters{Machine: "c1-w-1", Action: "Reset"}),
		"a reset with all that there is": ofNode(&pb.NodeParameters{Machine: "c1-w-1", Action: "Reset", Reset_: &pb.ResetParameters{
			Manner: "Forced", Wipe: []string{"System", "UserVolumes"}, After: "PowerOff",
		}}),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			order.Cluster = ref(requests.Namespace, requests.Cluster)
			planned, err := service.PlanOperation(t.Context(), connect.NewRequest(&pb.PlanOperationRequest{Order: order}))
			g.Expect(err).NotTo(HaveOccurred())
			line := words(t, planned.Msg.GetPlan().GetCommand())
			g.Expect(line[0]).To(Equal("ichor"))

			user := newUser(t, nil)
			user.version = "v0.4.0" // The hub's.
			user.config("current: test\ncontexts:\n- {name: test, hub: " + serving.URL + ", credentials: {method: token, token: secret}}\n")
			recorded.orders = nil
			r := user.ichor(append(line[1:], "--dry-run")...)
			g.Expect(r.Code).To(BeZero(), r.Err)
			g.Expect(recorded.orders).To(HaveLen(1))
			g.Expect(recorded.orders[0]).To(BeComparableTo(order, protoEqual))
		})
	}
}
