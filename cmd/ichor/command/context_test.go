// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

func kubeconfig(t *testing.T, contexts ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: " + contexts[0] + "\nclusters: [{name: x, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: x}]\ncontexts:\n"
	for _, c := range contexts {
		text += "- {name: " + c + ", context: {cluster: x, user: x, namespace: ns-" + c + "}}\n"
	}
	NewWithT(t).Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
	return file
}

// Where a command works: the order of precedence that the help tells.
func TestPrecedence(t *testing.T) {
	const both = "current: one\ncontexts:\n- {name: one, hub: 'https://one'}\n- {name: two, hub: 'https://two', namespace: n2, cluster: c2}\n- {name: file, kubeconfig: FILE, kubeContext: k2}\n"
	for name, row := range map[string]struct {
		config                                string
		flagKubeconfig, flagContext, variable string
		plugin                                bool
		where, namespace, cluster, err        string
	}{
		"nothing":                             {where: "kubeconfig", namespace: "ns-k1"},
		"current":                             {config: both, where: "hub https://one", namespace: "default"},
		"variable":                            {config: both, variable: "two", where: "hub https://two", namespace: "n2", cluster: "c2"},
		"flag":                                {config: both, variable: "one", flagContext: "two", where: "hub https://two", namespace: "n2", cluster: "c2"},
		"a kubeconfig":                        {config: both, flagKubeconfig: "FILE", where: "kubeconfig", namespace: "ns-k1"},
		"a kubeconfig and its context":        {config: both, flagKubeconfig: "FILE", flagContext: "k2", where: "kubeconfig", namespace: "ns-k2"},
		"a context with a kubeconfig":         {config: both, flagContext: "file", where: "kubeconfig", namespace: "ns-k2"},
		"a context of the default kubeconfig": {config: both, flagContext: "k2", where: "kubeconfig", namespace: "ns-k2"},
		"no such context":                     {config: both, flagContext: "k9", err: `there is no context "k9"; there are: one, two, file`},
		"no such variable":                    {config: both, variable: "k2", err: `there is no context "k2"; there are: one, two, file`},
		"a plugin of kubectl":                 {config: both, variable: "two", plugin: true, where: "kubeconfig", namespace: "ns-k1"},
		"a plugin with a context":             {config: both, flagContext: "k2", plugin: true, where: "kubeconfig", namespace: "ns-k2"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			file := kubeconfig(t, "k1", "k2")
			t.Setenv("KUBECONFIG", file)
			path := filepath.Join(t.TempDir(), "config.yaml")
			g.Expect(os.WriteFile(path, []byte(strings.ReplaceAll(row.config, "FILE", file)), 0o600)).To(Succeed())
			env := map[string]string{"ICHOR_CONFIG": path, "ICHOR_CONTEXT": row.variable}
			a := &app{
				Surroundings: Surroundings{Getenv: func(name string) string { return env[name] }}, plugin: row.plugin,
				kubeconfig: strings.ReplaceAll(row.flagKubeconfig, "FILE", file), context: row.flagContext,
			}
			err := a.connect()
			defer a.disconnect()
			if row.err != "" {
				g.Expect(err).To(MatchError(row.err))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			want := row.where
			if want == "kubeconfig" {
				want = "management API http://127.0.0.1:1"
			}
			g.Expect([]string{a.connection.where, a.namespace, a.cluster}).To(Equal([]string{want, row.namespace, row.cluster}))
		})
	}
}

func TestWithoutAnything(t *testing.T) {
	r := newUser(t, nil).ichor("cluster", "list")
	NewWithT(t).Expect(r).To(And(HaveField("Code", 1), HaveField("Err", ContainSubstring("sign in to a hub with: ichor login URL, or set $KUBECONFIG or --kubeconfig"))))
}

func TestContexts(t *testing.T) {
	g := NewWithT(t)
	u := newUser(t, nil)
	g.Expect(u.ichor("context", "list")).To(Equal(result{Err: "No contexts. Sign in to a hub with: ichor login URL\n"}))
	g.Expect(u.ichor("context", "set", "--cluster", "x")).To(And(HaveField("Code", 2), HaveField("Err", ContainSubstring("there is no current context"))))
	g.Expect(u.ichor("context", "set", "a", "--cluster", "x")).To(And(HaveField("Code", 2), HaveField("Err", ContainSubstring("make one with --hub or --kubeconfig"))))
	g.Expect(u.ichor("context", "set", "a", "--hub", "http://example.com")).To(And(HaveField("Code", 2), HaveField("Err", ContainSubstring("use https"))))

	g.Expect(u.ichor("context", "set", "a", "--hub", "a.example.com").Out).To(Equal("Context a is written.\n"))
	g.Expect(u.ichor("context", "set", "b", "--hub", "https://b.example.com", "--namespace", "team").Code).To(BeZero())
	g.Expect(u.ichor("context", "current").Out).To(Equal("a\n"), "the first one")
	g.Expect(u.ichor("context", "use", "b").Out).To(Equal("Context b is the current one.\n"))
	g.Expect(u.ichor("context", "set", "--cluster", "prod-1").Code).To(BeZero())
	g.Expect(u.ichor("context", "list").Out).To(Equal(`CURRENT   NAME   WHERE                   USER   NAMESPACE   CLUSTER
          a      https://a.example.com   -      -           -
*         b      https://b.example.com   -      team        prod-1
`))
	g.Expect(u.ichor("context", "list", "-o", "name").Out).To(Equal("a\nb\n"))
	g.Expect(u.ichor("context", "set", "--cluster", "", "--namespace", "").Code).To(BeZero())
	g.Expect(u.configured()).NotTo(Or(ContainSubstring("prod-1"), ContainSubstring("team")))

	u.env["ICHOR_CONTEXT"] = "a"
	g.Expect(u.ichor("context", "current").Out).To(Equal("a\n"))
	g.Expect(u.ichor("context", "use", "b").Err).To(Equal("Warning: $ICHOR_CONTEXT names a, which comes first.\n"))
	u.env["ICHOR_CONTEXT"] = ""

	g.Expect(u.ichor("context", "use", "c")).To(And(HaveField("Code", 2), HaveField("Err", ContainSubstring("there are: a, b"))))
	g.Expect(u.ichor("context", "delete", "b").Out).To(Equal("Context b is deleted.\n"))
	g.Expect(u.ichor("context", "delete", "b").Code).To(Equal(2))
	g.Expect(u.ichor("context", "current")).To(And(HaveField("Code", 1), HaveField("Err", ContainSubstring("there is no current context"))))
}

// Credentials are for one hub, and are not shown.
func TestContextsAndCredentials(t *testing.T) {
	g := NewWithT(t)
	u := newUser(t, nil)
	u.config("current: a\ncontexts: [{name: a, hub: 'https://a', cluster: c, fingerprint: F, credentials: {method: link, user: admin, token: secret}}]\n")
	for _, format := range []string{"table", "wide", "json", "yaml", "jsonl"} {
		r := u.ichor("context", "list", "-o", format)
		g.Expect(r.Code).To(BeZero())
		g.Expect(r.Out).To(And(ContainSubstring("admin"), Not(ContainSubstring("secret"))))
	}
	g.Expect(u.ichor("context", "set", "--hub", "https://a").Code).To(BeZero())
	g.Expect(u.configured()).To(ContainSubstring("secret"))
	g.Expect(u.ichor("context", "set", "--hub", "https://b").Code).To(BeZero())
	g.Expect(u.configured()).To(And(ContainSubstring("cluster: c"), Not(ContainSubstring("secret")), Not(ContainSubstring("fingerprint"))))
}

func TestWrongPermissionsAreSaid(t *testing.T) {
	g := NewWithT(t)
	u := newUser(t, world(t))
	g.Expect(os.Chmod(u.env["ICHOR_CONFIG"], 0o640)).To(Succeed())
	r := u.ichor("cluster", "list", "-o", "name")
	g.Expect(r).To(And(HaveField("Code", 0), HaveField("Err", ContainSubstring("had mode 0640 and holds credentials: its mode is 0600 now"))))
}

func TestVersion(t *testing.T) {
	g := NewWithT(t)
	u := newUser(t, nil)
	u.version = "v0.3.0"
	g.Expect(u.ichor("version")).To(Equal(result{Out: "v0.3.0\n"}), "there is no hub to ask")

	h := newFakeHub(t)
	h.lay["GetHubResponse"] = nil
	h.answer(&pb.GetHubResponse{Version: "v0.5.1", OldestClient: "v0.4.0"})
	u = newUser(t, h)
	u.version = "v0.3.0"
	g.Expect(u.ichor("version", "--client")).To(Equal(result{Out: "v0.3.0\n"}))
	g.Expect(u.ichor("version").Out).To(Equal("Client:  v0.3.0\nHub:     v0.5.1\nWhere:   hub " + h.url + "\nSkew:    this is ichor v0.3.0, and the hub (v0.5.1) takes writes from v0.4.0 on: install ichor v0.5.1\n"))
	var printed map[string]string
	g.Expect(json.Unmarshal([]byte(u.ichor("version", "-o", "json").Out), &printed)).To(Succeed())
	g.Expect(printed).To(HaveKeyWithValue("hub", "v0.5.1"))
}

// What is too far from the hub reads and does not write.
func TestSkew(t *testing.T) {
	for name, row := range map[string]struct{ client, hub, oldest, says string }{
		"equal":           {"v0.4.0", "v0.4.0", "", ""},
		"one behind":      {"v0.3.9", "v0.4.0", "", ""},
		"one ahead":       {"v0.5.0", "v0.4.3", "", ""},
		"two behind":      {"v0.2.0", "v0.4.0", "", "this is ichor v0.2.0, and the hub is v0.4.0, which is more than one minor version away: install ichor v0.4.0; nothing was changed"},
		"two ahead":       {"v0.6.0", "v0.4.0", "", "more than one minor version away"},
		"another major":   {"v1.0.0", "v0.9.0", "", "more than one minor version away"},
		"too old":         {"v0.4.0", "v0.4.2", "v0.4.1", "this is ichor v0.4.0, and the hub (v0.4.2) takes writes from v0.4.1 on: install ichor v0.4.2; nothing was changed"},
		"old enough":      {"v0.4.1", "v0.4.2", "v0.4.1", ""},
		"built at home":   {"dev", "v0.9.0", "v0.8.0", ""},
		"a hash":          {"1234567", "v0.9.0", "v0.8.0", ""}, // Without tags, git describe says that.
		"between":         {"v0.2.0-5-gabcdef0", "v0.9.0", "v0.8.0", ""},
		"hub of somebody": {"v0.2.0", "dev", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := world(t)
			h.lay["GetHubResponse"] = nil
			h.answer(&pb.GetHubResponse{Version: row.hub, OldestClient: row.oldest}, &pb.HoldMachineResponse{Changed: true})
			u := newUser(t, h)
			u.version = row.client
			g.Expect(u.ichor("machine", "list").Code).To(BeZero(), "reading is always fine")
			r := u.ichor("machine", "hold", "w-2")
			if row.says == "" {
				g.Expect(r.Code).To(BeZero(), r.Err)
				return
			}
			g.Expect(r).To(And(HaveField("Code", 1), HaveField("Err", ContainSubstring(row.says))))
			g.Expect(of[*pb.HoldMachineRequest](h)).To(BeEmpty())
		})
	}
}

// Completion knows what is there, and never says why it does not.
func TestCompletion(t *testing.T) {
	for name, row := range map[string]struct {
		args []string
		want []string
	}{
		"clusters":         {[]string{"cluster", "get", ""}, []string{"new", "prod-1"}},
		"begun":            {[]string{"cluster", "get", "pr"}, []string{"prod-1"}},
		"only one":         {[]string{"cluster", "get", "prod-1", ""}, nil},
		"flag":             {[]string{"operation", "list", "--cluster", ""}, []string{"new", "prod-1"}},
		"operations":       {[]string{"op", "watch", ""}, []string{"prod-1-talos-x"}},
		"machines":         {[]string{"node", "reboot", ""}, []string{"cp-1", "prod-1-cp-1", "prod-1-w-1", "prod-1-w-2", "prod-1-w-3", "prod-1-w-4", "w-1", "w-2", "w-3"}},
		"what is wiped":    {[]string{"node", "reset", "--wipe", ""}, []string{"system", "user-volumes"}},
		"contexts":         {[]string{"context", "use", ""}, []string{"test"}},
		"contexts by flag": {[]string{"--context", ""}, []string{"test"}},
		"outputs":          {[]string{"cluster", "list", "-o", "j"}, []string{"json", "jsonl"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := newUser(t, world(t)).ichor(append([]string{"__complete"}, row.args...)...)
			g.Expect(r.Code).To(BeZero())
			lines := strings.Split(strings.TrimSpace(r.Out), "\n")
			g.Expect(lines[len(lines)-1]).To(Equal(":4"), "no names of files")
			g.Expect(lines[:len(lines)-1]).To(BeComparableTo(append([]string{}, row.want...)))
		})
	}
	g := NewWithT(t)
	u := newUser(t, nil)
	u.config("current: gone\ncontexts: [{name: gone, hub: 'http://127.0.0.1:1'}]")
	g.Expect(u.ichor("__complete", "cluster", "get", "")).To(And(HaveField("Code", 0), HaveField("Out", Equal(":4\n"))))
	stuck := world(t)
	released := make(chan struct{})
	t.Cleanup(func() { close(released) })
	stuck.lay["ListClustersResponse"] = []func() (proto.Message, error){func() (proto.Message, error) {
		<-released
		return &pb.ListClustersResponse{}, nil
	}}
	begun := time.Now()
	g.Expect(newUser(t, stuck).ichor("__complete", "cluster", "get", "")).To(HaveField("Out", Equal(":4\n")))
	g.Expect(time.Since(begun)).To(BeNumerically("<", 2*completionTime), "a hub that does not answer holds nobody up")
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		g.Expect(u.ichor("completion", shell).Out).To(ContainSubstring("__complete"), shell)
	}
}

// Called by kubectl, it says so, and its flags are kubectl's.
func TestKubectlPlugin(t *testing.T) {
	g := NewWithT(t)
	u := newUser(t, world(t))
	u.plugin = true
	r := u.ichor("operation", "get", "--help")
	g.Expect(r.Out).To(And(ContainSubstring("kubectl ichor operation get NAME [flags]"), ContainSubstring("-n, --namespace"), ContainSubstring("--context"), ContainSubstring("--kubeconfig")))
	g.Expect(u.ichor("cluster", "list", "--help").Out).To(ContainSubstring("-A, --all-namespaces"))
	g.Expect(u.ichor("operation", "get").Err).To(ContainSubstring("see: kubectl ichor operation get --help"))
	g.Expect(u.ichor("login", "x").Code).To(Equal(2), "a plugin signs in as kubectl does")
}
