// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/target"
)

// secretServer is an API server with Secrets that lists them in pages and writes them by patches, as far as a rewriting needs it.
type secretServer struct {
	*httptest.Server

	mu       sync.Mutex
	names    []string // As namespace/name, in the order of etcd.
	patched  []string
	accepted []string
	pages    int

	// conflicts are how often a patch of an object conflicts, gone are objects that are not there any more when they are patched, and expires
	// says that the second page is asked for too late.
	conflicts map[string]int
	gone      map[string]bool
	anew      map[string]bool
	expires   bool
	stop      string // The object whose patch fails.
	locked    bool   // There is an object that no key reads.
}

func newSecretServer(t *testing.T, names ...string) *secretServer {
	t.Helper()
	s := &secretServer{names: names, conflicts: map[string]int{}, gone: map[string]bool{}, anew: map[string]bool{}}
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *secretServer) writer(t *testing.T) *connection {
	t.Helper()
	way, err := newRoute(&credentials.Kubeconfig{Version: "1", Config: &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}}, target.Target{})
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "https://target.invalid", QPS: -1}, &http.Client{Transport: guarded{way}})
	if err != nil {
		t.Fatal(err)
	}
	return &connection{clients: clients, guard: func(context.Context) error { return nil }}
}

func (s *secretServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Method == http.MethodPatch:
		s.patch(w, r)
	case s.locked:
		failure(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "")
	case r.URL.Path == "/api/v1/secrets":
		s.accepted = append(s.accepted, r.Header.Get("Accept"))
		s.list(w, r)
	case strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/"):
		s.get(w, nameIn(r.URL.Path))
	default:
		http.NotFound(w, r)
	}
}

func nameIn(path string) string {
	parts := strings.Split(path, "/") // /api/v1/namespaces/NS/secrets/NAME
	return parts[4] + "/" + parts[6]
}

func answer(w http.ResponseWriter, code int, object any) {
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(object) //nolint:errcheck,errchkjson // The client tells.
}

func failure(w http.ResponseWriter, code int, reason metav1.StatusReason, next string) {
	answer(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, ListMeta: metav1.ListMeta{Continue: next}, Status: "Failure", Reason: reason, Code: int32(code),
	})
}

func (s *secretServer) object(name string) metav1.PartialObjectMetadata {
	namespace, short, _ := strings.Cut(name, "/")
	uid := "uid-" + short
	if s.anew[name] {
		uid += "-2"
	}
	return metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: short, UID: types.UID(uid)},
	}
}

func (s *secretServer) list(w http.ResponseWriter, r *http.Request) {
	s.pages++
	from, late := 0, strings.HasPrefix(r.URL.Query().Get("continue"), "old-")
	if next := strings.TrimPrefix(r.URL.Query().Get("continue"), "old-"); next != "" {
		from, _ = strconv.Atoi(next)
	}
	if late {
		failure(w, http.StatusGone, metav1.StatusReasonExpired, strconv.Itoa(from))
		return
	}
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	to := min(from+limit, len(s.names))
	page := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}}
	for _, name := range s.names[from:to] {
		page.Items = append(page.Items, s.object(name))
	}
	if to < len(s.names) {
		page.Continue = strconv.Itoa(to)
		if s.expires {
			page.Continue = "old-" + page.Continue
		}
	}
	answer(w, http.StatusOK, page)
}

func (s *secretServer) get(w http.ResponseWriter, name string) {
	if s.gone[name] || !slices.Contains(s.names, name) {
		failure(w, http.StatusNotFound, metav1.StatusReasonNotFound, "")
		return
	}
	answer(w, http.StatusOK, s.object(name))
}

func (s *secretServer) patch(w http.ResponseWriter, r *http.Request) {
	name := nameIn(r.URL.Path)
	body, _ := io.ReadAll(r.Body)
	var patch struct {
		Metadata map[string]string `json:"metadata"`
	}
	if json.Unmarshal(body, &patch) != nil || len(patch.Metadata) != 1 || patch.Metadata["uid"] == "" {
		failure(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "")
		return
	}
	switch {
	case s.gone[name]:
		failure(w, http.StatusNotFound, metav1.StatusReasonNotFound, "")
	case s.anew[name], s.conflicts[name] > 0:
		s.conflicts[name]--
		failure(w, http.StatusConflict, metav1.StatusReasonConflict, "")
	case s.stop == name:
		failure(w, http.StatusForbidden, metav1.StatusReasonForbidden, "")
	default:
		s.patched = append(s.patched, name)
		answer(w, http.StatusOK, s.object(name))
	}
}

func many(count int) []string {
	var names []string
	for i := range count {
		names = append(names, fmt.Sprintf("ns-%d/s-%04d", i/100, i))
	}
	slices.Sort(names)
	return names
}

// Whatever happens to them meanwhile, all are written once, and nobody reads what is in them.
func TestRewrite(t *testing.T) {
	g := NewWithT(t)
	s := newSecretServer(t, many(600)...)
	s.conflicts[s.names[3]], s.gone[s.names[5]], s.expires = 2, true, true
	writer := s.writer(t)
	done, err := writer.Rewrite(t.Context(), "secrets", "", 1000)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(done).To(Equal(Rewritten{Count: 600, Last: s.names[599]}))
	g.Expect(s.patched).To(Equal(slices.Delete(slices.Clone(s.names), 5, 6)))
	for _, accepted := range s.accepted {
		g.Expect(accepted).To(ContainSubstring("as=PartialObjectMetadataList"))
	}
	g.Expect(s.pages).To(BeNumerically(">=", 3))
}

// It goes on behind the last one that is known to be done, page after page, and after a failure in the middle.
func TestRewriteGoesOn(t *testing.T) {
	g := NewWithT(t)
	s := newSecretServer(t, many(260)...)
	writer := s.writer(t)
	s.stop = s.names[120]
	after := ""
	for calls := 0; ; calls++ {
		g.Expect(calls).To(BeNumerically("<", 10))
		done, err := writer.Rewrite(t.Context(), "secrets", after, 50)
		after = done.Last
		if err != nil {
			g.Expect(err).To(MatchError(ContainSubstring("writing secrets " + s.names[120] + " again")))
			g.Expect(done.Count).To(Equal(20))
			s.mu.Lock()
			s.stop = ""
			s.mu.Unlock()
			continue
		}
		if !done.More {
			break
		}
		g.Expect(done.Count).To(Equal(50))
	}
	g.Expect(s.patched).To(Equal(s.names), "each of them, once")
}

// An object that was made anew was written by who has the key of now.
func TestRewriteLeavesWhatWasMadeAnew(t *testing.T) {
	g := NewWithT(t)
	s := newSecretServer(t, "a/x", "b/y")
	listed := s.object("a/x")
	writer := s.writer(t)
	s.anew["a/x"] = true
	g.Expect(writer.writeAgain(t.Context(), apiResource{secretsResource, true}, &listed)).To(Succeed())
	g.Expect(s.patched).To(BeEmpty())
}

func TestRewriteAsksTheGuard(t *testing.T) {
	g := NewWithT(t)
	s := newSecretServer(t, "a/x")
	writer := s.writer(t)
	writer.guard = func(context.Context) error { return errors.New("somebody else leads") }
	_, err := writer.Rewrite(t.Context(), "secrets", "", 10)
	g.Expect(err).To(MatchError(guard.ErrNotAllowed))
	g.Expect(s.patched).To(BeEmpty())
}

// Every object is read, page after page, and what cannot be read is an error.
func TestReadAll(t *testing.T) {
	g := NewWithT(t)
	s := newSecretServer(t, many(600)...)
	s.expires = true
	g.Expect(s.writer(t).ReadAll(t.Context(), "secrets")).To(Equal(600))
	for _, accepted := range s.accepted {
		g.Expect(accepted).To(ContainSubstring("as=PartialObjectMetadataList"))
	}
	g.Expect(s.patched).To(BeEmpty())
	s.locked = true
	_, err := s.writer(t).ReadAll(t.Context(), "secrets")
	g.Expect(err).To(MatchError(ContainSubstring("listing secrets: ")))
	g.Expect(Silent(err)).To(BeFalse(), "it has answered")
	s.Close()
	_, err = s.writer(t).ReadAll(t.Context(), "secrets")
	g.Expect(Silent(err)).To(BeTrue())
	g.Expect(Silent(nil)).To(BeFalse())
	g.Expect(Silent(guard.ErrNotAllowed)).To(BeFalse())
}

func TestLegacyTokens(t *testing.T) {
	g := NewWithT(t)
	s := newSecretServer(t, "b/y", "a/x")
	tokens, err := s.writer(t).LegacyTokens(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect([]string{tokens[0].Name, tokens[1].Name}).To(Equal([]string{"a/x", "b/y"}))
}

func TestTokens(t *testing.T) {
	g := NewWithT(t)
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	token := part(`{"alg":"RS256","kid":"k1"}`) + "." + part(`{"exp":1767225600}`) + ".c2ln"
	g.Expect(keyIDOf(token)).To(Equal("k1"))
	ends, err := TokenEnds(token)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ends.UTC()).To(Equal(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
	for _, text := range []string{"", "x", "!.!", part(`{}`) + "." + part(`{}`)} {
		_, err := keyIDOf(text)
		g.Expect(err).To(HaveOccurred(), text)
		_, err = TokenEnds(text)
		g.Expect(err).To(HaveOccurred(), text)
	}
}
