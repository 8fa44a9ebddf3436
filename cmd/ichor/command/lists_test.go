// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// world lays down a hub with a few of everything.
func world(t *testing.T) *fakeHub {
	t.Helper()
	h := newFakeHub(t)
	h.answer(
		&pb.ListClustersResponse{Clusters: []*pb.Cluster{prod(), fresh()}}, &pb.GetClusterResponse{Cluster: prod(), Machines: machines()},
		&pb.ListMachinesResponse{Machines: machines()}, &pb.ListOperationsResponse{Operations: []*pb.Operation{upgrade(inProgress), failedUpgrade(), overUpgrade()}},
		&pb.GetOperationResponse{Operation: failedUpgrade(), Events: []*pb.OperationEvent{
			{Time: ago(time.Minute), Warning: true, Reason: "StepFailed", Message: "exit code 6", Count: 1}, {Time: ago(time.Second), Reason: "Resumed", Message: "by alice"},
		}},
	)
	return h
}

// What people and programs read, word by word.
func TestOutputs(t *testing.T) {
	for name, args := range map[string][]string{
		"cluster-list": {"cluster", "list"}, "cluster-list-all": {"cluster", "list", "-A"}, "cluster-list-wide": {"cluster", "ls", "-o", "wide"},
		"cluster-list-name": {"cluster", "list", "-o", "name"}, "cluster-list-json": {"cluster", "list", "-o", "json"}, "cluster-get": {"cluster", "get", "prod-1"},
		"machine-list": {"machine", "list"}, "machine-list-wide": {"machine", "list", "-A", "-o", "wide"}, "machine-list-name": {"machines", "list", "-o", "name"},
		"machine-get": {"machine", "get", "w-2"}, "machine-get-yaml": {"machine", "get", "w-2", "-o", "yaml"},
		"operation-list": {"operation", "list"}, "operation-list-jsonl": {"op", "list", "-o", "jsonl"}, "operation-list-wide": {"op", "list", "-o", "wide"},
		"operation-get": {"operation", "get", "prod-1-talos-x"}, "operation-get-yaml": {"op", "get", "prod-1-talos-x", "-o", "yaml"},
		"operation-get-name": {"op", "get", "prod-1-talos-x", "-o", "name"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newUser(t, world(t)).ichor(args...)
			NewWithT(t).Expect(r).To(And(HaveField("Code", 0), HaveField("Err", BeEmpty())))
			golden(t, name+".txt", r.Out)
		})
	}
}

// What -o name prints, commands take back.
func TestNamesGoRoundTrip(t *testing.T) {
	g := NewWithT(t)
	h := world(t)
	u := newUser(t, h)
	name := strings.TrimSpace(u.ichor("op", "get", "prod-1-talos-x", "-o", "name").Out)
	g.Expect(name).To(Equal("talosoperation.ichor.maesh.dev/prod-1-talos-x"))
	g.Expect(u.ichor("op", "get", name).Code).To(BeZero())
	for _, request := range of[*pb.GetOperationRequest](h) {
		g.Expect(request.GetRef()).To(BeComparableTo(ref("default", "prod-1-talos-x"), protoEqual))
	}
}

// A name of another namespace than the one that commands look into says so, and is taken back.
func TestNamesOfOtherNamespaces(t *testing.T) {
	g := NewWithT(t)
	h := newFakeHub(t)
	elsewhere := upgrade(inProgress)
	elsewhere.Ref, elsewhere.Cluster = ref("team", "x"), ref("team", "c")
	h.answer(&pb.ListOperationsResponse{Operations: []*pb.Operation{elsewhere}}, &pb.GetOperationResponse{Operation: elsewhere})
	u := newUser(t, h)
	name := strings.TrimSpace(u.ichor("op", "list", "-A", "-o", "name").Out)
	g.Expect(name).To(Equal("talosoperation.ichor.maesh.dev/team/x"))
	g.Expect(u.ichor("op", "get", name, "-o", "name").Out).To(Equal(name + "\n"))
	g.Expect(of[*pb.GetOperationRequest](h)[0].GetRef()).To(BeComparableTo(ref("team", "x"), protoEqual))
}

func TestParseNames(t *testing.T) {
	for text, want := range map[string]string{
		"x": "here/x", "ns/x": "ns/x", "talosoperation/x": "here/x", "operation/x": "here/x", "op/x": "here/x", "talosoperations.ichor.maesh.dev/x": "here/x",
		"talosoperation/ns/x": "ns/x", "machine/x": "machine/x",
	} {
		t.Run(text, func(t *testing.T) {
			parsed, err := operationResource.parse(text, "here")
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			NewWithT(t).Expect(parsed.GetNamespace() + "/" + parsed.GetName()).To(Equal(want))
		})
	}
	for text, want := range map[string]string{
		"": "is no name", "/x": "is no name", "x/": "is no name", "a/b/c/d": "is no name",
		"talosmachine/x": `"talosmachine/x" is not a talosoperation`, "pod/ns/x": `"pod/ns/x" is not a talosoperation`,
	} {
		t.Run(text, func(t *testing.T) {
			_, err := operationResource.parse(text, "here")
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(want)))
		})
	}
}

// A script reads no remark, and an empty list is one.
func TestEmptyLists(t *testing.T) {
	g := NewWithT(t)
	h := newFakeHub(t)
	h.answer(&pb.ListOperationsResponse{}, &pb.ListClustersResponse{})
	u := newUser(t, h)
	g.Expect(u.ichor("op", "list")).To(Equal(result{Out: "", Err: "No operations.\n"}))
	g.Expect(u.ichor("op", "list", "-o", "name")).To(Equal(result{}))
	r := u.ichor("op", "list", "-o", "json")
	var list struct{ Operations []any }
	g.Expect(json.Unmarshal([]byte(r.Out), &list)).To(Succeed())
	g.Expect(list.Operations).To(And(BeEmpty(), Not(BeNil())))
}

// A list that could not be read in full is told, and is not a success.
func TestPartialLists(t *testing.T) {
	g := NewWithT(t)
	h := newFakeHub(t)
	h.answer(&pb.ListClustersResponse{Clusters: []*pb.Cluster{prod()}, Failures: []*pb.Failure{{Scope: ref("secret", ""), Code: "permission_denied", Message: "not allowed"}}})
	r := newUser(t, h).ichor("cluster", "list", "-A", "-o", "name")
	g.Expect(r).To(Equal(result{
		Out: "taloscluster.ichor.maesh.dev/prod-1\n", Err: "Warning: namespace secret is missing: not allowed\nError: the list is not complete\n", Code: 1,
	}))
}

func TestPagesAreJoined(t *testing.T) {
	g := NewWithT(t)
	h := newFakeHub(t)
	h.answer(
		&pb.ListMachinesResponse{Machines: machines()[:2], NextPageToken: "more"}, &pb.ListMachinesResponse{Machines: machines()[2:]},
	)
	r := newUser(t, h).ichor("machine", "list", "-o", "name")
	g.Expect(strings.Count(r.Out, "\n")).To(Equal(5))
	asked := of[*pb.ListMachinesRequest](h)
	g.Expect(asked).To(HaveLen(2))
	g.Expect(asked[1].GetPage().GetToken()).To(Equal("more"))
}

// What is asked of the hub: namespaces, clusters and filters, from flags and from what the context remembers.
func TestScope(t *testing.T) {
	remembered := "current: test\ncontexts: [{name: test, hub: %s, namespace: team, cluster: prod-1}]\n"
	for name, row := range map[string]struct {
		config string
		args   []string
		want   *pb.OperationFilter
		err    string
	}{
		"default":            {args: nil, want: &pb.OperationFilter{Namespaces: []string{"default"}}},
		"namespace":          {args: []string{"-n", "x"}, want: &pb.OperationFilter{Namespaces: []string{"x"}}},
		"all":                {args: []string{"-A"}, want: &pb.OperationFilter{}},
		"cluster":            {args: []string{"--cluster", "a"}, want: &pb.OperationFilter{Namespaces: []string{"default"}, Clusters: []*pb.Reference{ref("default", "a")}}},
		"cluster elsewhere":  {args: []string{"--cluster", "x/a"}, want: &pb.OperationFilter{Namespaces: []string{"x"}, Clusters: []*pb.Reference{ref("x", "a")}}},
		"remembered":         {config: remembered, want: &pb.OperationFilter{Namespaces: []string{"team"}, Clusters: []*pb.Reference{ref("team", "prod-1")}}},
		"remembered and all": {config: remembered, args: []string{"-A"}, want: &pb.OperationFilter{}},
		"none this time":     {config: remembered, args: []string{"--cluster", ""}, want: &pb.OperationFilter{Namespaces: []string{"team"}}},
		"cluster and all":    {args: []string{"-A", "--cluster", "a"}, err: "does not go with --all-namespaces"},
		"filters": {args: []string{"--kind", "talos,ca-rotation", "--phase", "in-progress", "-l", "a=b", "--text", "t"}, want: &pb.OperationFilter{
			Namespaces: []string{"default"}, Kinds: []pb.OperationKind{1, 8}, Phases: []pb.OperationPhase{inProgress}, LabelSelector: "a=b", Text: "t",
		}},
		"no such kind":  {args: []string{"--kind", "helm"}, err: `--kind "helm" is not one of talos, kubernetes, ichor, cni, config, node, shutdown, ca-rotation, key-rotation, etcd-restore`},
		"no such phase": {args: []string{"--phase", "done"}, err: `--phase "done" is not one of pending, in-progress, paused, completed`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := world(t)
			u := newUser(t, h)
			if row.config != "" {
				u.config(strings.ReplaceAll(row.config, "%s", h.url))
			}
			r := u.ichor(append([]string{"op", "list"}, row.args...)...)
			if row.err != "" {
				g.Expect(r).To(And(HaveField("Code", 2), HaveField("Err", ContainSubstring(row.err))))
				g.Expect(of[*pb.ListOperationsRequest](h)).To(BeEmpty())
				return
			}
			g.Expect(r.Code).To(BeZero(), r.Err)
			g.Expect(of[*pb.ListOperationsRequest](h)[0].GetFilter()).To(BeComparableTo(row.want, protoEqual))
		})
	}
}

// Texts of a target cannot move the cursor of whoever reads them.
func TestPlain(t *testing.T) {
	g := NewWithT(t)
	h := newFakeHub(t)
	evil := machine("prod-1-w-1", "w-1", func(m *pb.Machine) { m.Held, m.HoldNote = true, "x\x1b[2J\ny\tz" })
	h.answer(&pb.ListMachinesResponse{Machines: []*pb.Machine{evil}})
	out := newUser(t, h).ichor("machine", "list").Out
	g.Expect(out).To(ContainSubstring("held: x [2J y z"))
	g.Expect(strings.Count(out, "\n")).To(Equal(2))
}

// A machine goes by either of its names; the name of a node may be that of several.
func TestMachineNames(t *testing.T) {
	for text, row := range map[string]struct {
		code int
		says string
	}{
		"prod-1-w-2": {}, "w-2": {}, "W-2": {}, "default/w-2": {}, "talosmachine/prod-1-w-2": {},
		"w-9": {1, `there is no machine "w-9"; list them with: ichor machine list`},
		"w-5": {1, `machine "w-5" is one of prod-1-w-5, prod-2-w-5: name the cluster with --cluster, or use a full name`},
	} {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			h := newFakeHub(t)
			twins := append(machines(), machine("prod-1-w-5", "w-5", func(*pb.Machine) {}), machine("prod-2-w-5", "w-5", func(*pb.Machine) {}))
			h.answer(&pb.ListMachinesResponse{Machines: twins}, &pb.HoldMachineResponse{Changed: true})
			r := newUser(t, h).ichor("machine", "hold", text, "--note", "disk swap")
			g.Expect(r.Code).To(Equal(row.code), r.Err)
			if row.says != "" {
				g.Expect(r.Err).To(ContainSubstring(row.says))
				g.Expect(of[*pb.HoldMachineRequest](h)).To(BeEmpty())
				return
			}
			g.Expect(r.Out).To(Equal("Machine prod-1-w-2 is held: upgrades skip it until: ichor machine unhold prod-1-w-2\n"))
			g.Expect(of[*pb.HoldMachineRequest](h)[0]).To(BeComparableTo(&pb.HoldMachineRequest{Ref: ref("default", "prod-1-w-2"), Held: true, Note: "disk swap"}, protoEqual))
		})
	}
}

func TestSteerMachines(t *testing.T) {
	g := NewWithT(t)
	h := world(t)
	h.answer(&pb.HoldMachineResponse{Changed: true}, &pb.ApproveMachineResponse{Changed: true}, &pb.ApproveMachineResponse{})
	u := newUser(t, h)
	g.Expect(u.ichor("machine", "unhold", "w-2").Out).To(Equal("Machine prod-1-w-2 is not held.\n"))
	g.Expect(u.ichor("machine", "approve", "w-1").Out).To(Equal("Machine prod-1-w-1 is approved: operations take it from now on.\n"))
	g.Expect(u.ichor("machine", "approve", "w-1").Out).To(Equal("Machine prod-1-w-1 was approved before.\n"))
	g.Expect(u.ichor("machine", "approve", "w-1", "-o", "name").Out).To(Equal("talosmachine.ichor.maesh.dev/prod-1-w-1\n"))
}

func TestForget(t *testing.T) {
	g := NewWithT(t)
	h := world(t)
	h.answer(&pb.ForgetClusterResponse{Gone: true}, &pb.ForgetClusterResponse{})
	u := newUser(t, h)
	r := u.ichor("cluster", "forget", "prod-1")
	g.Expect(r).To(And(HaveField("Code", 2), HaveField("Err", ContainSubstring("add --yes"))))
	g.Expect(of[*pb.ForgetClusterRequest](h)).To(BeEmpty())
	g.Expect(u.ichor("cluster", "forget", "prod-1", "--yes").Out).To(Equal("Cluster prod-1 is forgotten.\n"))
	g.Expect(u.ichor("cluster", "forget", "prod-1", "--yes").Out).To(ContainSubstring("an operation settles first"))
}

// Errors are told in words, with what helps, and without the codes of the protocol.
func TestErrors(t *testing.T) {
	for name, row := range map[string]struct {
		code connect.Code
		text string
		want string
	}{
		"not there":       {connect.CodeNotFound, `there is no operation "x" in namespace "default"; list them with: ichor operation list`, `Error: there is no operation "x" in namespace "default"; list them with: ichor operation list` + "\n"},
		"not allowed":     {connect.CodePermissionDenied, "alice may not get talosoperations", "Error: alice may not get talosoperations\n"},
		"not signed in":   {connect.CodeUnauthenticated, "the token has expired", "does not know you (the token has expired); sign in with: ichor login --context test\n"},
		"away":            {connect.CodeUnavailable, "starting", "does not answer: starting\n"},
		"moving a cursor": {connect.CodeNotFound, "x\x1b[2J", "Error: x [2J\n"},
		"of an old hub":   {connect.CodeUnimplemented, "no such procedure", "does not know how to do that: no such procedure; see: ichor version\n"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := newFakeHub(t)
			h.refuse(&pb.GetOperationResponse{}, row.code, row.text)
			r := newUser(t, h).ichor("op", "get", "x")
			g.Expect(r).To(And(HaveField("Code", 1), HaveField("Out", BeEmpty()), HaveField("Err", HaveSuffix(row.want))))
		})
	}
}

func TestImport(t *testing.T) {
	g := NewWithT(t)
	h := world(t)
	h.answer(&pb.ImportClusterResponse{Cluster: fresh()})
	u := newUser(t, h)
	r := u.ichor("cluster", "import", "new", "--from-kubeconfig", "nowhere")
	g.Expect(r).To(And(HaveField("Code", 2), HaveField("Err", ContainSubstring("from-talosconfig"))))
	r = u.ichor("cluster", "import", "new", "--from-kubeconfig", "nowhere", "--from-talosconfig", "nowhere")
	g.Expect(r).To(And(HaveField("Code", 1), HaveField("Err", ContainSubstring("--from-kubeconfig: open nowhere"))))
	g.Expect(of[*pb.ImportClusterRequest](h)).To(BeEmpty())

	g.Expect(u.ichor("cluster", "import", "new", "--label", "env=prod", "--offline").Out).To(Equal("Cluster new is imported. See whether it can be reached: ichor cluster get new\n"))
	g.Expect(of[*pb.ImportClusterRequest](h)[0]).To(BeComparableTo(
		&pb.ImportClusterRequest{Ref: ref("default", "new"), Labels: map[string]string{"env": "prod"}, Offline: true}, protoEqual))
}
