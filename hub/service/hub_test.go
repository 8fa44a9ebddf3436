// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/fleet"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// rightsBackend is one of a caller with some rights.
type rightsBackend struct {
	caller auth.Caller

	// may are namespace, verb, resource and subresource; an empty namespace is every one.
	may     []string
	failing error
	fleet   *fleet.Fleet

	mu    sync.Mutex
	asked []string
}

func (b *rightsBackend) Session(context.Context) (*Session, error) {
	return &Session{Caller: b.caller, Rights: b}, nil
}

func (b *rightsBackend) Fleet(context.Context, ...string) (*fleet.Fleet, []*pb.Failure, error) {
	if b.fleet == nil {
		return fleet.New(), nil, nil
	}
	return b.fleet, nil, nil
}

func (b *rightsBackend) May(_ context.Context, what authorizationv1.ResourceAttributes) error {
	right := what.Verb + " " + what.Resource
	if what.Subresource != "" {
		right += "/" + what.Subresource
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, what.Namespace+": "+right)
	if b.failing != nil {
		return b.failing
	}
	if slices.Contains(b.may, ": "+right) || slices.Contains(b.may, what.Namespace+": "+right) {
		return nil
	}
	return connect.NewError(connect.CodePermissionDenied, errors.New("no"))
}

func (b *rightsBackend) Readable(_ context.Context, resource string, namespaces []string) (map[string]bool, []*pb.Failure) {
	readable := map[string]bool{}
	if b.failing != nil {
		return nil, []*pb.Failure{{Code: "unavailable", Message: b.failing.Error()}}
	}
	for _, namespace := range namespaces {
		readable[namespace] = slices.Contains(b.may, namespace+": list "+resource)
	}
	return readable, nil
}

func rightsOfSession(t *testing.T, b *rightsBackend, namespaces ...string) *pb.GetSessionResponse {
	t.Helper()
	answer, err := (&Server{Backend: b}).GetSession(t.Context(), connect.NewRequest(&pb.GetSessionRequest{Namespaces: namespaces}))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return answer.Msg
}

func TestSessionSaysWhoCallsAndWhatTheyMay(t *testing.T) {
	g := NewWithT(t)
	b := &rightsBackend{
		caller: auth.Caller{Name: "ada", Groups: []string{"platform"}, Method: auth.OIDCMethod, Expires: now},
		may: []string{
			": list talosclusters",
			"a: create talosoperations", "a: patch talosoperations", "a: delete talosoperations", "a: start talosoperations/talos", "a: patch talosmachines",
			"b: create talosoperations", "b: override talosoperations", "b: create talosclusters", "b: delete talosclusters",
		},
	}
	session := rightsOfSession(t, b, "a", "b", "")
	g.Expect(session.GetUser()).To(Equal("ada"))
	g.Expect(session.GetGroups()).To(Equal([]string{"platform"}))
	g.Expect(session.GetMethod()).To(Equal("oidc"))
	g.Expect(session.GetExpireTime().AsTime()).To(BeTemporally("==", now))
	g.Expect(session.GetRights()).To(HaveLen(3))
	a, other, everywhere := session.GetRights()[0], session.GetRights()[1], session.GetRights()[2]
	g.Expect(a.String()).To(Equal((&pb.NamespaceRights{Namespace: "a", Read: true, Operate: true, Start: []string{"talos"}, Machines: true}).String()))
	g.Expect(other.String()).To(Equal((&pb.NamespaceRights{Namespace: "b", Read: true, Override: true}).String()),
		"who cannot patch operations cannot pause them, and who cannot write Secrets cannot import clusters")
	g.Expect(everywhere.String()).To(Equal((&pb.NamespaceRights{Read: true}).String()))
	g.Expect(b.asked).NotTo(ContainElement("a: list talosclusters"), "who may everywhere is not asked about again")
}

func TestSessionOfWhoMayEverything(t *testing.T) {
	g := NewWithT(t)
	b := &rightsBackend{caller: auth.Caller{Name: "root"}}
	for _, right := range []string{
		"list talosclusters", "create talosclusters", "delete talosclusters", "create secrets", "create clusters", "delete clusters", "patch talosmachines",
		"create talosoperations", "patch talosoperations", "delete talosoperations", "override talosoperations",
	} {
		b.may = append(b.may, ": "+right)
	}
	for _, verb := range v1alpha1.StartSubresources() {
		b.may = append(b.may, ": start talosoperations/"+verb)
	}
	session := rightsOfSession(t, b, "a")
	g.Expect(session.GetExpireTime()).To(BeNil(), "a token of the management API says nothing of its end")
	rights := session.GetRights()[0]
	g.Expect(rights.GetStart()).To(Equal(v1alpha1.StartSubresources()))
	g.Expect(rights.GetRead() && rights.GetOperate() && rights.GetOverride() && rights.GetMachines() && rights.GetClusters()).To(BeTrue())
	for _, asked := range b.asked {
		g.Expect(asked).To(HavePrefix(": "))
	}
}

func TestSessionFailsWhereRightsAreNotKnown(t *testing.T) {
	g := NewWithT(t)
	b := &rightsBackend{failing: connect.NewError(connect.CodeUnavailable, errors.New("the API is away"))}
	_, err := (&Server{Backend: b}).GetSession(t.Context(), connect.NewRequest(&pb.GetSessionRequest{Namespaces: []string{"a"}}))
	g.Expect(connect.CodeOf(err)).To(Equal(connect.CodeUnavailable), "and says not that there are none")
	g.Expect(b.asked).To(HaveLen(1))
}

func TestSessionTellsOfTheNamespacesThatTheCallerMayRead(t *testing.T) {
	g := NewWithT(t)
	b := &rightsBackend{fleet: fleet.New(), may: []string{"a: list talosclusters", "c: list talosclusters"}}
	b.fleet.Apply(opOf("a", "one", "c1"), opOf("b", "two", "c1"), opOf("c", "three", "c1"))
	var namespaces []string
	for _, rights := range rightsOfSession(t, b).GetRights() {
		namespaces = append(namespaces, rights.GetNamespace())
	}
	g.Expect(namespaces).To(Equal([]string{"", "a", "c"}))

	b.failing = errors.New("the API is away")
	_, err := (&Server{Backend: b}).GetSession(t.Context(), connect.NewRequest(&pb.GetSessionRequest{}))
	g.Expect(connect.CodeOf(err)).To(Equal(connect.CodeUnavailable))
	g.Expect(err).To(MatchError(ContainSubstring("unavailable: the API is away")))
}

func TestSessionOfTooManyNamespaces(t *testing.T) {
	g := NewWithT(t)
	_, err := (&Server{Backend: &rightsBackend{}}).GetSession(t.Context(), connect.NewRequest(&pb.GetSessionRequest{Namespaces: make([]string, 1001)}))
	g.Expect(connect.CodeOf(err)).To(Equal(connect.CodeInvalidArgument))
	g.Expect(err).To(MatchError(ContainSubstring("namespaces: there are 1001, want at most 1000")))
}

// Each namespace costs some twenty questions, so nobody makes the hub ask about a thousand names that they make up.
func TestSessionOfNamespacesThatThereAreNot(t *testing.T) {
	g := NewWithT(t)
	b := &rightsBackend{fleet: fleet.New(), may: []string{": start talosoperations/talos", "last: list talosclusters"}}
	b.fleet.Apply(opOf("last", "one", "c1"))
	names := make([]string, 0, 1000)
	for i := range cap(names) - 1 {
		names = append(names, fmt.Sprintf("made-up-%d", i))
	}
	rights := rightsOfSession(t, b, append(names, "last")...).GetRights()
	g.Expect(rights).To(HaveLen(1000))
	g.Expect(rights[500].String()).To(Equal((&pb.NamespaceRights{Namespace: "made-up-500", Start: []string{"talos"}}).String()), "what they may everywhere")
	g.Expect(rights[999].GetRead()).To(BeTrue(), "that one is known")
	of := map[string]bool{}
	for _, asked := range b.asked {
		namespace, _, _ := strings.Cut(asked, ":")
		of[namespace] = true
	}
	g.Expect(of).To(HaveLen(22), "every namespace, the known one, and 20 for whoever begins in one")
}

func TestHubSaysHowToSignInNow(t *testing.T) {
	g := NewWithT(t)
	asked := 0
	s := &Server{Hub: &pb.GetHubResponse{Version: "v1"}, SignIn: func(context.Context) *pb.SignIn {
		asked++
		return &pb.SignIn{Token: true}
	}}
	for range 2 {
		answer, err := s.GetHub(t.Context(), connect.NewRequest(&pb.GetHubRequest{}))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(answer.Msg.GetVersion()).To(Equal("v1"))
		g.Expect(answer.Msg.GetOldestClient()).NotTo(BeEmpty(), "or no client is too old to write")
		g.Expect(answer.Msg.GetSignIn().GetToken()).To(BeTrue())
		g.Expect(answer.Msg.GetKinds()).To(Equal([]pb.OperationKind{
			pb.OperationKind_OPERATION_KIND_TALOS, pb.OperationKind_OPERATION_KIND_KUBERNETES, pb.OperationKind_OPERATION_KIND_ICHOR, pb.OperationKind_OPERATION_KIND_CONFIG,
			pb.OperationKind_OPERATION_KIND_NODE, pb.OperationKind_OPERATION_KIND_SHUTDOWN,
			pb.OperationKind_OPERATION_KIND_CA_ROTATION, pb.OperationKind_OPERATION_KIND_KEY_ROTATION, pb.OperationKind_OPERATION_KIND_ETCD_RESTORE,
		}))
	}
	g.Expect(asked).To(Equal(2))
	g.Expect(s.Hub.GetSignIn()).To(BeNil())
}
