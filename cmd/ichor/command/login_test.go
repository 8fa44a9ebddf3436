// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/cmd/ichor/contexts"
	"ichor.maesh.dev/hub/cmd/ichor/dial"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/test/openid"
)

// secureHub is a hub with a certificate that nobody vouches for.
type secureHub struct {
	*fakeHub

	server *httptest.Server
	links  int
}

func newSecureHub(t *testing.T, signIn *pb.SignIn) *secureHub {
	t.Helper()
	h := &secureHub{fakeHub: newFakeHub(t)}
	h.lay["GetHubResponse"] = nil
	h.answer(&pb.GetHubResponse{Version: "dev", Name: "fleet", SignIn: signIn}, &pb.GetSessionResponse{
		User: "alice", Groups: []string{"ops", "oncall"}, Method: "token", ExpireTime: ago(-time.Hour), Rights: []*pb.NamespaceRights{{Read: true, Start: []string{"talos", "node-reboot"}}},
	})
	mux := h.handler()
	mux.HandleFunc("POST /auth/link", func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Code string }
		if json.NewDecoder(r.Body).Decode(&body) != nil || body.Code != "once" || h.links > 0 {
			http.Error(w, "this link is not good any more", http.StatusForbidden)
			return
		}
		h.links++
		json.NewEncoder(w).Encode(map[string]any{"token": "by-link", "expires": now.Add(time.Hour)}) //nolint:errcheck // The client tells.
	})
	h.server = httptest.NewTLSServer(mux)
	t.Cleanup(h.server.Close)
	return h
}

func (h *secureHub) fingerprint() string { return dial.Fingerprint(h.server.Certificate()) }

func (h *secureHub) caFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	NewWithT(t).Expect(os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.server.Certificate().Raw}), 0o600)).To(Succeed())
	return file
}

// lastToken is what the last call was authenticated with.
func (h *secureHub) lastToken() string { return h.headers[len(h.headers)-1].Get("Authorization") }

func (u *user) file() *contexts.File {
	u.t.Helper()
	file, mended, err := contexts.Load(u.env["ICHOR_CONFIG"])
	NewWithT(u.t).Expect(err).NotTo(HaveOccurred())
	NewWithT(u.t).Expect(mended).To(BeEmpty())
	return file
}

// A hub is trusted for a reason that the user has given, and nothing is sent to it before.
func TestLoginTrust(t *testing.T) {
	for name, row := range map[string]struct {
		args     func(*secureHub, *testing.T) []string
		terminal bool
		types    string
		code     int
		says     string
	}{
		"nothing":               {code: 1, says: "nobody vouches for the certificate of"},
		"a fingerprint":         {args: func(h *secureHub, _ *testing.T) []string { return []string{"--fingerprint", h.fingerprint()} }},
		"another":               {args: func(*secureHub, *testing.T) []string { return []string{"--fingerprint", strings.Repeat("00", 32)} }, code: 1, says: "either it was renewed, or this is not the hub; nothing was sent to it"},
		"no fingerprint":        {args: func(*secureHub, *testing.T) []string { return []string{"--fingerprint", "abc"} }, code: 2, says: "64 hexadecimal digits"},
		"an authority":          {args: func(h *secureHub, t *testing.T) []string { return []string{"--ca-file", h.caFile(t)} }},
		"no authority":          {args: func(*secureHub, *testing.T) []string { return []string{"--ca-file", "nowhere"} }, code: 1, says: "--ca-file: open nowhere"},
		"both":                  {args: func(*secureHub, *testing.T) []string { return []string{"--ca-file", "a", "--fingerprint", "b"} }, code: 2, says: "ca-file"},
		"a person who says":     {terminal: true, types: "yes\n", says: "Are they the same? (yes/no)"},
		"a person who does not": {terminal: true, types: "y\n", code: 1, says: "not confirmed: nothing was sent to it"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := newSecureHub(t, &pb.SignIn{Token: true})
			token := filepath.Join(t.TempDir(), "token")
			g.Expect(os.WriteFile(token, []byte("secret\n"), 0o600)).To(Succeed())
			u := newUser(t, nil)
			u.terminal, u.in = row.terminal, strings.NewReader(row.types)
			args := []string{"login", h.server.URL, "--token-file", token}
			if row.args != nil {
				args = append(args, row.args(h, t)...)
			}
			r := u.ichor(args...)
			g.Expect(r).To(And(HaveField("Code", row.code), HaveField("Err", ContainSubstring(row.says))))
			if row.terminal {
				g.Expect(r.Err).To(ContainSubstring(h.fingerprint()))
			}
			if row.code != 0 {
				g.Expect(h.asked).To(BeEmpty())
				g.Expect(u.env["ICHOR_CONFIG"]).NotTo(BeAnExistingFile())
				return
			}
			g.Expect(r.Out).To(Equal("Signed in to " + h.server.URL + " as alice. Context fleet is the current one.\n"))
			g.Expect(h.lastToken()).To(Equal("Bearer secret"))
			g.Expect(u.ichor("whoami", "-o", "name")).To(Equal(result{Out: "alice\n"}), "what was trusted once is trusted again")
		})
	}
}

// A file with a token is read again for each command, since others renew it, and its token is nowhere else.
func TestLoginByToken(t *testing.T) {
	g := NewWithT(t)
	h := newSecureHub(t, &pb.SignIn{Token: true})
	token := filepath.Join(t.TempDir(), "token")
	g.Expect(os.WriteFile(token, []byte("first"), 0o600)).To(Succeed())
	u := newUser(t, nil)
	g.Expect(u.ichor("login", h.server.URL, "--token-file", token, "--ca-file", h.caFile(t)).Code).To(BeZero())
	g.Expect(u.configured()).NotTo(ContainSubstring("first"))
	g.Expect(os.WriteFile(token, []byte("second"), 0o600)).To(Succeed())
	g.Expect(u.ichor("whoami").Code).To(BeZero())
	g.Expect(h.lastToken()).To(Equal("Bearer second"))
	g.Expect(os.WriteFile(token, []byte("two words"), 0o600)).To(Succeed())
	calls := len(h.asked)
	g.Expect(u.ichor("whoami")).To(And(HaveField("Code", 1), HaveField("Err", ContainSubstring("does not hold a token: one word is expected"))))
	g.Expect(h.asked).To(HaveLen(calls))

	u.in = strings.NewReader("from-stdin\n")
	g.Expect(u.ichor("login", "--token-file", "-").Code).To(BeZero(), "the hub is that of the current context")
	g.Expect(h.lastToken()).To(Equal("Bearer from-stdin"))
	g.Expect(u.file().Find("fleet").Credentials).To(HaveField("Token", "from-stdin"))
	u.in = strings.NewReader(" \n")
	g.Expect(u.ichor("login", "--token-file", "-")).To(And(HaveField("Code", 1), HaveField("Err", ContainSubstring("there is no token on standard input"))))
	g.Expect(u.file().Find("fleet").Credentials).To(HaveField("Token", "from-stdin"), "what does not work replaces nothing")
}

func TestLoginByLink(t *testing.T) {
	g := NewWithT(t)
	h := newSecureHub(t, &pb.SignIn{Link: true})
	u := newUser(t, nil)
	link := h.server.URL + "/auth/link?code=once"
	g.Expect(u.ichor("login", h.server.URL, "--fingerprint", h.fingerprint())).To(And(HaveField("Code", 1), HaveField("Err", ContainSubstring("print a link with ichor-hub login-link"))))
	g.Expect(u.ichor("login", h.server.URL, "--link", link).Code).To(Equal(2))
	g.Expect(u.ichor("login", "--link", "nonsense").Code).To(Equal(2))
	r := u.ichor("login", "--link", link, "--fingerprint", h.fingerprint(), "--context", "mine")
	g.Expect(r.Code).To(BeZero(), r.Err)
	g.Expect(r.Out).To(ContainSubstring("Context mine is the current one."))
	g.Expect(h.lastToken()).To(Equal("Bearer by-link"))
	g.Expect(u.file().Find("mine").Credentials).To(And(HaveField("Method", "link"), HaveField("User", "alice")))
	g.Expect(u.ichor("login", "--link", link)).To(And(HaveField("Code", 1), HaveField("Err", ContainSubstring("this link is not good any more"))))

	g.Expect(contexts.Update(u.env["ICHOR_CONFIG"], func(f *contexts.File) error {
		over := now.Add(-time.Minute)
		f.Find("mine").Credentials.Expires = &over
		return nil
	})).To(Succeed())
	calls := len(h.asked)
	g.Expect(u.ichor("whoami")).To(And(HaveField("Code", 1), HaveField("Err", ContainSubstring("you were signed in until 2026-01-02")), HaveField("Err", ContainSubstring("sign in again with: ichor login --context mine"))))
	g.Expect(h.asked).To(HaveLen(calls), "a token that is over is not sent")
}

func TestLogoutAndWhoami(t *testing.T) {
	g := NewWithT(t)
	h := newSecureHub(t, &pb.SignIn{Token: true})
	u := newUser(t, nil)
	g.Expect(u.ichor("logout")).To(And(HaveField("Code", 2), HaveField("Err", ContainSubstring("there is no current context"))))
	u.in = strings.NewReader("secret")
	g.Expect(u.ichor("login", h.server.URL, "--token-file", "-", "--fingerprint", h.fingerprint()).Code).To(BeZero())
	g.Expect(u.ichor("whoami").Out).To(Equal(`User:          alice
Groups:        ops, oncall
Where:         hub ` + h.server.URL + `
Signed in by:  token
Until:         2026-01-02 04:04:05

NAMESPACE   READ   OPERATE   START               OVERRIDE   MACHINES   CLUSTERS
(all)       yes    no        talos,node-reboot   no         no         no
`))
	g.Expect(u.ichor("logout").Out).To(Equal("Signed out of context fleet.\n"))
	g.Expect(u.file().Find("fleet")).To(And(HaveField("Credentials", BeNil()), HaveField("Fingerprint", h.fingerprint())))
	u.ichor("whoami")
	g.Expect(h.lastToken()).To(BeEmpty())
}

// The context of one hub is not overwritten by another that happens to have the same name.
func TestLoginNames(t *testing.T) {
	g := NewWithT(t)
	first, second := newSecureHub(t, &pb.SignIn{Token: true}), newSecureHub(t, &pb.SignIn{Token: true})
	u := newUser(t, nil)
	login := func(h *secureHub, args ...string) result {
		u.in = strings.NewReader("secret")
		return u.ichor(append([]string{"login", h.server.URL, "--token-file", "-", "--fingerprint", h.fingerprint()}, args...)...)
	}
	g.Expect(login(first).Code).To(BeZero())
	g.Expect(login(first).Code).To(BeZero(), "again")
	g.Expect(login(second).Code).To(BeZero())
	g.Expect(u.file().Names()).To(Equal([]string{"fleet", strings.TrimPrefix(second.server.URL, "https://")}))
	g.Expect(login(second, "--context", "fleet")).To(And(HaveField("Code", 2), HaveField("Err", ContainSubstring("context fleet is about "+first.server.URL))))
	g.Expect(u.ichor("login")).To(HaveField("Code", 1), "the current hub has neither a provider nor a link")
}

// Through an identity provider: with a browser here or on another device, and again by itself when the token has ended.
func TestLoginByProvider(t *testing.T) {
	g := NewWithT(t)
	provider := openid.Start(t, "https://hub/auth/callback")
	h := newSecureHub(t, &pb.SignIn{Oidc: &pb.SignIn_Oidc{Issuer: provider.URL, ClientId: openid.CLIClient, Scopes: []string{"openid", "groups"}, Device: true}})
	u := newUser(t, nil)
	u.browse = func(page string) error {
		go func() {
			response, err := http.Get(page) // The browser.
			if err == nil {
				response.Body.Close() //nolint:errcheck // It was read.
			}
		}()
		return nil
	}
	r := u.ichor("login", h.server.URL, "--fingerprint", h.fingerprint())
	g.Expect(r.Code).To(BeZero(), r.Err)
	g.Expect(r.Err).To(ContainSubstring("Opening a browser at:\n  " + provider.URL))
	held := u.file().Find("fleet").Credentials
	g.Expect(held).To(And(HaveField("Method", "oidc"), HaveField("Issuer", provider.URL), HaveField("ClientID", openid.CLIClient), HaveField("RefreshToken", Not(BeEmpty()))))
	g.Expect(h.lastToken()).To(Equal("Bearer " + held.Token))

	g.Expect(contexts.Update(u.env["ICHOR_CONFIG"], func(f *contexts.File) error {
		over := now.Add(-time.Minute)
		f.Find("fleet").Credentials.Expires = &over
		f.Find("fleet").Credentials.Token = "over"
		return nil
	})).To(Succeed())
	r = u.ichor("whoami")
	g.Expect(r.Code).To(BeZero(), r.Err)
	renewed := u.file().Find("fleet").Credentials
	g.Expect(renewed.Token).NotTo(Or(Equal("over"), Equal(held.Token)))
	g.Expect(h.lastToken()).To(Equal("Bearer " + renewed.Token))
	g.Expect(renewed).To(And(HaveField("Issuer", provider.URL), HaveField("User", "alice")))
}

// A provider leads a browser to its page, and not to a program or a file of the user's.
func TestOpenBrowser(t *testing.T) {
	for page, opens := range map[string]bool{
		"https://id.example.com/auth?x=1": true, "http://127.0.0.1:8080/auth": true, "http://id.example.com/auth": false, "file:///usr/bin/x": false,
		"javascript:alert(1)": false, "https://a@b.example.com/": false, "": false, "calc.exe": false,
	} {
		t.Run(page, func(t *testing.T) {
			opened := ""
			a := &app{Surroundings: Surroundings{Err: io.Discard, Browse: func(page string) error { opened = page; return nil }}}
			err := a.openBrowser(page)
			NewWithT(t).Expect(err == nil).To(Equal(opens))
			NewWithT(t).Expect(opened == page && page != "").To(Equal(opens))
		})
	}
}

// What a hub calls itself is not the name of a context if it is none.
func TestNameOfAHub(t *testing.T) {
	g := NewWithT(t)
	h := newSecureHub(t, &pb.SignIn{Token: true})
	h.lay["GetHubResponse"] = nil
	h.answer(&pb.GetHubResponse{Version: "dev", Name: "x\x1b[2J y"})
	u := newUser(t, nil)
	u.in = strings.NewReader("secret")
	g.Expect(u.ichor("login", h.server.URL, "--token-file", "-", "--fingerprint", h.fingerprint()).Code).To(BeZero())
	g.Expect(u.file().Names()).To(Equal([]string{strings.TrimPrefix(h.server.URL, "https://")}))
}

// deviceScreen is standard error, and a person who enters the code that it shows on another device.
type deviceScreen struct {
	strings.Builder

	enter func(code string)
}

var codeShown = regexp.MustCompile(`enter the code (\S+)`)

func (d *deviceScreen) Write(p []byte) (int, error) {
	if found := codeShown.FindSubmatch(p); found != nil {
		d.enter(string(found[1]))
	}
	return d.Builder.Write(p)
}

func TestLoginOnAnotherDevice(t *testing.T) {
	g := NewWithT(t)
	provider := openid.Start(t, "https://hub/auth/callback")
	h := newSecureHub(t, &pb.SignIn{Oidc: &pb.SignIn_Oidc{Issuer: provider.URL, ClientId: openid.CLIClient, Device: true}})
	u := newUser(t, nil)
	screen := &deviceScreen{enter: func(code string) { g.Expect(provider.Approve(t.Context(), code)).To(Succeed()) }}
	cmd := New(Surroundings{
		In: u.in, Out: &strings.Builder{}, Err: screen, Getenv: func(name string) string { return u.env[name] }, Now: time.Now, Version: "dev",
	}, false)
	cmd.SetArgs([]string{"login", h.server.URL, "--fingerprint", h.fingerprint(), "--device"})
	g.Expect(cmd.ExecuteContext(t.Context())).To(Succeed(), screen.String())
	g.Expect(u.file().Find("fleet").Credentials).To(HaveField("Method", "oidc"))
}
