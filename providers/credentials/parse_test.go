// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"encoding/base64"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestParseKubeconfig(t *testing.T) {
	g := NewWithT(t)
	parsed, err := ParseKubeconfig(kubeconfig(t), KubeconfigOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(parsed.Config.Host).To(Equal("https://10.0.0.10:6443"))
	g.Expect(parsed.Certificate.NotAfter).To(BeTemporally("==", ends))
	g.Expect(parsed.Config.CAData).NotTo(BeEmpty())
}

var (
	certificate = regexp.MustCompile(`client-certificate-data: .*`)
	anyKey      = regexp.MustCompile(`client-key-data: .*`)
	anyCA       = regexp.MustCompile(`certificate-authority-data: .*`)
)

// user replaces how the user of the kubeconfig proves who it is.
func user(tb testing.TB, fields string) []byte {
	tb.Helper()
	return []byte(anyKey.ReplaceAllString(certificate.ReplaceAllString(string(kubeconfig(tb)), fields), "#"))
}

// Cases A6 and A14: what cannot work from a hub, or must not, is refused with the reason.
func TestCaseA6A14KubeconfigRefused(t *testing.T) {
	server := "https://10.0.0.10:6443"
	two := "contexts:\n- name: other\n  context: {cluster: prod, user: admin}"
	cluster := func(field string) []byte { return kubeconfig(t, "    server:", "    "+field+"\n    server:") }
	otherKey := func() []byte {
		_, key := newAuthority(t, "x").pair()
		return []byte(anyKey.ReplaceAllString(string(kubeconfig(t)), "client-key-data: "+key))
	}()
	for name, row := range map[string]struct {
		data    []byte
		options KubeconfigOptions
		err     string
	}{
		"no YAML":         {data: []byte("\x00{"), err: "it is no YAML mapping: "},
		"a list":          {data: []byte("[]"), err: "it is no YAML mapping: "},
		"empty":           {err: "it is empty"},
		"blank":           {data: []byte(" \n\n"), err: "it is empty"},
		"a talosconfig":   {data: talosconfig(t, "c1"), err: "it is a talosconfig and no kubeconfig"},
		"a Secret":        {data: []byte("kind: Secret\ndata: {}"), err: `it is a document of kind "Secret" and no kubeconfig`},
		"a machineconfig": {data: []byte("version: v1alpha1\nmachine: {type: worker}"), err: "it is a machine config and no kubeconfig"},
		"something else":  {data: []byte("a: b"), err: "it is another document and no kubeconfig"},
		"no such context": {data: kubeconfig(t, "current-context: admin@prod", "current-context: x"), err: `current-context "x" is not among the contexts ["admin@prod"]`},
		"no such context, by name": {
			data: kubeconfig(t, "contexts:", two), options: KubeconfigOptions{Context: "x"}, err: `context "x" is not among the contexts ["admin@prod" "other"]`,
		},
		"no current context (A7)": {
			data: kubeconfig(t, "current-context: admin@prod", "", "contexts:", two),
			err:  `current-context is not set and there is not exactly one context: choose one of ["admin@prod" "other"]`,
		},
		"no such cluster":   {data: kubeconfig(t, "cluster: prod,", "cluster: x,"), err: `cluster "x" of context "admin@prod" is not among the clusters ["prod"]`},
		"no such user":      {data: kubeconfig(t, "user: admin}", "user: x}"), err: `user "x" of context "admin@prod" is not among the users ["admin"]`},
		"no scheme":         {data: kubeconfig(t, server, "10.0.0.10:6443"), err: `cluster "prod": server "10.0.0.10:6443" must be https://HOST:PORT`},
		"a name, no scheme": {data: kubeconfig(t, server, "api.example.org"), err: `cluster "prod": server "api.example.org" must be https://HOST:PORT`},
		"no https":          {data: kubeconfig(t, server, "http://10.0.0.10:6443"), err: `cluster "prod": server "http://10.0.0.10:6443" must be https://HOST:PORT`},
		"no host":           {data: kubeconfig(t, server, "https:///x"), err: `server "https:///x" must be https://HOST:PORT`},
		"a port alone":      {data: kubeconfig(t, server, "https://:6443"), err: `server "https://:6443" must be https://HOST:PORT`},
		"no port at all":    {data: kubeconfig(t, server, "https://10.0.0.10:https"), err: `server "https://10.0.0.10:https" must be https://HOST:PORT`},
		"a port too high":   {data: kubeconfig(t, server, "https://10.0.0.10:65536"), err: "a port from 1 to 65535"},
		"a port too low":    {data: kubeconfig(t, server, "https://10.0.0.10:0"), err: "a port from 1 to 65535"},
		"insecure":          {data: cluster("insecure-skip-tls-verify: true"), err: `cluster "prod": insecure-skip-tls-verify is set; give certificate-authority-data instead, or allow it with --allow-insecure-kubeconfig`},
		"insecure, and CA": {
			data: cluster("insecure-skip-tls-verify: true"), options: KubeconfigOptions{AllowInsecure: true},
			err: `cluster "prod": insecure-skip-tls-verify and certificate-authority-data are both set; remove one of them`,
		},
		"CA in a file":       {data: cluster("certificate-authority: /pki/ca.crt"), err: `cluster "prod": certificate-authority names the file "/pki/ca.crt"`},
		"CA is none":         {data: []byte(anyCA.ReplaceAllString(string(kubeconfig(t)), "certificate-authority-data: bm9uZQ==")), err: `cluster "prod": certificate-authority-data: no PEM block found`},
		"a strange proxy":    {data: cluster("proxy-url: ftp://proxy:21"), err: `cluster "prod": proxy-url "ftp://proxy:21" must be one of http://HOST:PORT, https://HOST:PORT and socks5://HOST:PORT`},
		"a proxy, no scheme": {data: cluster("proxy-url: proxy:3128"), err: `proxy-url "proxy:3128" must be one of`},
		"a program":          {data: user(t, "exec: {apiVersion: client.authentication.k8s.io/v1, command: aws}"), err: `user "admin" runs the program "aws" (exec); the hub needs a client certificate or a token`},
		"an auth-provider":   {data: user(t, "auth-provider: {name: oidc}"), err: `user "admin" uses the auth-provider "oidc"`},
		"certificate file":   {data: user(t, "client-certificate: /c.crt"), err: `user "admin" names the file "/c.crt" as client-certificate`},
		"key file":           {data: user(t, "client-key: /c.key"), err: `user "admin" names the file "/c.key" as client-key`},
		"token file":         {data: user(t, "tokenFile: /token"), err: `user "admin" names the file "/token" as tokenFile`},
		"no certificate":     {data: []byte(certificate.ReplaceAllString(string(kubeconfig(t)), "client-certificate-data: bm9uZQ==")), err: `client-certificate-data of user "admin": no PEM block found`},
		"no key":             {data: kubeconfig(t, "client-key-data:", "x:"), err: `user "admin" has client-certificate-data without client-key-data`},
		"a key alone":        {data: kubeconfig(t, "client-certificate-data:", "x:"), err: `user "admin" has client-key-data without client-certificate-data`},
		"nothing to prove":   {data: user(t, ""), err: `user "admin" has nothing to prove who it is`},
		"another key":        {data: otherKey, err: `client-certificate-data of user "admin": the key does not belong to the certificate`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := ParseKubeconfig(row.data, row.options)
			g.Expect(err).To(MatchError(ErrInvalid))
			g.Expect(err).To(MatchError(And(HavePrefix("kubeconfig is invalid: "), ContainSubstring(row.err))))
		})
	}
}

func TestKubeconfigWithToken(t *testing.T) {
	g := NewWithT(t)
	parsed, err := ParseKubeconfig(user(t, "token: secret"), KubeconfigOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(parsed.Config.BearerToken).To(Equal("secret"))
	g.Expect(parsed.Certificate).To(BeNil())
	g.Expect(parsed.Check(ends.AddDate(99, 0, 0))).To(BeNil(), "nobody knows when a token ends")
	g.Expect(parsed.Warning(ends.AddDate(99, 0, 0))).To(BeNil())
}

// Case A14: a proxy is honoured.
func TestCaseA14KubeconfigWithProxy(t *testing.T) {
	g := NewWithT(t)
	parsed, err := ParseKubeconfig(kubeconfig(t, "    server:", "    proxy-url: http://proxy.example:3128\n    server:"), KubeconfigOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(parsed.Config.Proxy).NotTo(BeNil())
	proxy, err := parsed.Config.Proxy(nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(proxy.String()).To(Equal("http://proxy.example:3128"))
}

// Case A7: the wanted context, else the one named like the cluster, else the only one; never the current one because it is that.
func TestCaseA7TalosconfigContext(t *testing.T) {
	one, two, mine := talosconfig(t, "foo"), talosconfig(t, "foo", "bar"), talosconfig(t, "bar", "c1")
	for name, row := range map[string]struct {
		data   []byte
		wanted string
		chosen string
		err    string
	}{
		"the only one":                     {data: one, chosen: "foo"},
		"named like the cluster":           {data: mine, chosen: "c1"},
		"wanted":                           {data: two, wanted: "bar", chosen: "bar"},
		"wanted rather than the cluster's": {data: mine, wanted: "bar", chosen: "bar"},
		"several":                          {data: two, err: `no context is named "c1" and there is not exactly one: choose one of ["bar" "foo"]`},
		"wanted, not there":                {data: one, wanted: "bar", err: `context "bar" is not among the contexts ["foo"]`},
		"wanted, not there, cluster's is":  {data: mine, wanted: "x", err: `context "x" is not among the contexts ["bar" "c1"]`},
		"none":                             {data: []byte("context: foo\n"), err: `no context is named "c1"`},
		"one of nothing":                   {data: []byte("contexts: {foo: null}\n"), err: "talosconfig is invalid: it cannot be read: "},
		"none matches (A7)":                {data: talosconfig(t, "foo", "bar", "baz"), err: `choose one of ["bar" "baz" "foo"]`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			parsed, err := ParseTalosconfig(row.data, row.wanted, "c1")
			if row.err != "" {
				g.Expect(err).To(MatchError(ErrInvalid))
				g.Expect(err).To(MatchError(ContainSubstring(row.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(parsed.Name).To(Equal(row.chosen))
			g.Expect(parsed.Certificate.NotAfter).To(BeTemporally("==", ends))
		})
	}
}

func TestTalosconfigRefused(t *testing.T) {
	good := talosconfig(t, "c1")
	endpoints := `[10.0.0.1, "[fd00::1]:50000"]`
	unreachable := "is not reachable from a hub: list addresses of control planes"
	line := func(field string) *regexp.Regexp { return regexp.MustCompile("(?m)^    " + field + ": .*$") }
	_, otherKey := newAuthority(t, "x").pair()
	without := func(field string) []byte { return line(field).ReplaceAll(good, nil) }
	for name, row := range map[string]struct {
		data []byte
		err  string
	}{
		"no YAML":          {[]byte("\x00{"), "talosconfig is invalid: it is no YAML mapping"},
		"empty":            {nil, "talosconfig is invalid: it is empty"},
		"a kubeconfig":     {kubeconfig(t), "talosconfig is invalid: it is a kubeconfig and no talosconfig"},
		"a Secret":         {[]byte("kind: Secret"), `it is a document of kind "Secret" and no talosconfig`},
		"no endpoints":     {replaced(good, endpoints, "[]"), `context "c1": endpoints is empty: list the control planes`},
		"localhost":        {replaced(good, endpoints, "[localhost]"), `endpoint "localhost" ` + unreachable},
		"localhost, port":  {replaced(good, endpoints, `["localhost:50000"]`), unreachable},
		"loopback":         {replaced(good, endpoints, "[127.0.0.1]"), unreachable},
		"loopback, second": {replaced(good, endpoints, "[10.0.0.1, 127.0.0.1]"), `endpoint "127.0.0.1" ` + unreachable},
		"loopback, v6":     {replaced(good, endpoints, `["[::1]:50000"]`), unreachable},
		"unspecified":      {replaced(good, endpoints, "[0.0.0.0]"), unreachable},
		"loopback, mapped": {replaced(good, endpoints, `["::ffff:127.0.0.1"]`), unreachable},
		"a URL":            {replaced(good, endpoints, `["https://10.0.0.1"]`), `endpoint "https://10.0.0.1" must be HOST or HOST:PORT`},
		"two in one":       {replaced(good, endpoints, `["10.0.0.1,10.0.0.2"]`), `endpoint "10.0.0.1,10.0.0.2" must be HOST or HOST:PORT`},
		"a strange proxy":  {replaced(good, endpoints, endpoints+"\n    proxy-url: ftp://x"), `context "c1": proxy-url "ftp://x" must be one of`},
		"another key":      {line("key").ReplaceAll(good, []byte("    key: "+otherKey)), "crt: the key does not belong to the certificate"},
		"ca is no PEM":     {line("ca").ReplaceAll(good, []byte("    ca: bm9uZQ==")), "ca: no PEM block found"},
		"empty endpoint":   {replaced(good, endpoints, `[""]`), unreachable},
		"no crt":           {without("crt"), "crt is empty; ca, crt and key are needed: the hub authenticates by certificate"},
		"no key":           {without("key"), "key is empty; ca, crt and key are needed"},
		"no ca":            {without("ca"), "ca is empty; ca, crt and key are needed"},
		"crt in raw PEM":   {line("crt").ReplaceAll(good, []byte(`    crt: "-----BEGIN"`)), "crt is not base64"},
		"crt is no PEM":    {line("crt").ReplaceAll(good, []byte("    crt: bm9uZQ==")), "crt: no PEM block found"},
		"crt is no crt":    {line("crt").ReplaceAll(good, []byte("    crt: LS0tLS1CRUdJTiBYLS0tLS0KYm05dVpRPT0KLS0tLS1FTkQgWC0tLS0tCg==")), "crt: "},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := ParseTalosconfig(row.data, "", "c1")
			g.Expect(err).To(MatchError(ErrInvalid))
			g.Expect(err).To(MatchError(ContainSubstring(row.err)))
		})
	}
}

// What is let through has none of what is refused, and stays usable when it is cut down to its context.
func FuzzParseKubeconfig(f *testing.F) {
	f.Add(kubeconfig(f), "", false)
	f.Add(user(f, "token: secret"), "admin@prod", false)
	f.Add([]byte("contexts: [{name: a, context: null}]\nclusters: [{name: b, cluster: null}]\nusers: [null]\ncurrent-context: a\n"), "", true)
	f.Add([]byte("kind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}, {name: b, context: {}}]\n"+
		"clusters: [{name: a, cluster: {server: \"https://[fd00::1]:6443\", insecure-skip-tls-verify: true}}]\nusers: [{name: a, user: {token: t}}]\n"), "b", true)
	f.Add([]byte("{}"), "", false)
	f.Fuzz(func(t *testing.T, data []byte, context string, allow bool) {
		parsed, err := ParseKubeconfig(data, KubeconfigOptions{Context: context, AllowInsecure: allow})
		if err != nil {
			return
		}
		c := parsed.Config
		if c.Insecure && !allow || c.ExecProvider != nil || c.AuthProvider != nil || c.CAFile+c.CertFile+c.KeyFile+c.BearerTokenFile != "" || !strings.HasPrefix(c.Host, "https://") {
			t.Fatalf("let through: %+v", c)
		}
		parsed.Check(begins)
		small, err := parsed.Minify()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseKubeconfig(small, KubeconfigOptions{AllowInsecure: allow})
		if err != nil || again.Config.Host != c.Host || again.Several() {
			t.Fatalf("cut down to %s: %v", small, err)
		}
	})
}

func FuzzParseTalosconfig(f *testing.F) {
	f.Add(talosconfig(f, "c1"), "", "c1")
	f.Add(talosconfig(f, "foo", "c1"), "foo", "c1")
	f.Add([]byte("contexts: {c1: null}"), "c1", "")
	f.Add([]byte("contexts: [a]"), "", "")
	f.Fuzz(func(t *testing.T, data []byte, wanted, cluster string) {
		parsed, err := ParseTalosconfig(data, wanted, cluster)
		if err != nil {
			return
		}
		if parsed.Context == nil || len(parsed.Context.Endpoints) == 0 || parsed.Certificate == nil {
			t.Fatalf("let through: %+v", parsed)
		}
		parsed.Check(begins)
		small, err := parsed.Minify()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseTalosconfig(small, parsed.Name, ""); err != nil || again.Several() {
			t.Fatalf("cut down to %s: %v", small, err)
		}
	})
}

// What is in order by itself and wrong at a time, or for somebody else, is told with dates and names.
func TestCheck(t *testing.T) {
	ca, other := newAuthority(t, "ours"), newAuthority(t, "theirs")
	files := func(t *testing.T, signer authority, roles ...string) (*Kubeconfig, *Talosconfig) {
		t.Helper()
		crt, key := signer.pair(roles...)
		text := anyCA.ReplaceAllString(string(kubeconfig(t)), "certificate-authority-data: "+ca.crt())
		text = anyKey.ReplaceAllString(certificate.ReplaceAllString(text, "client-certificate-data: "+crt), "client-key-data: "+key)
		kube, err := ParseKubeconfig([]byte(text), KubeconfigOptions{})
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		talos, err := ParseTalosconfig([]byte("contexts: {c1: {endpoints: [10.0.0.1], ca: "+ca.crt()+", crt: "+crt+", key: "+key+"}}"), "", "c1")
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		return kube, talos
	}
	for name, row := range map[string]struct {
		signer      authority
		roles       []string
		at          time.Time
		kube, talos *Problem
	}{
		"all is well":     {ca, []string{"os:admin"}, begins, nil, nil},
		"a little early":  {ca, []string{"os:admin"}, begins.Add(-time.Minute), nil, nil},
		"until the end":   {ca, []string{"os:admin"}, ends, nil, nil},
		"a role too many": {ca, []string{"os:reader", "os:admin"}, begins, nil, nil},
		"expired (A10)": {
			ca, []string{"os:admin"}, ends.Add(time.Second),
			&Problem{"KubeconfigExpired", `the client certificate of user "admin" ended on 2027-01-02`},
			&Problem{"TalosconfigExpired", `the client certificate of context "c1" ended on 2027-01-02`},
		},
		"not yet valid": {
			ca, []string{"os:admin"}, begins.Add(-time.Hour),
			&Problem{"NotYetValid", `the client certificate of user "admin" is not valid before 2026-01-02`},
			&Problem{"NotYetValid", `the client certificate of context "c1" is not valid before 2026-01-02`},
		},
		"of another CA": {
			other, []string{"os:admin"}, begins,
			&Problem{"Invalid", `the client certificate of user "admin" was signed by "CN=theirs", and not by the CA of the same file`},
			&Problem{"Invalid", `the client certificate of context "c1" was signed by "CN=theirs", and not by the CA of the same file`},
		},
		"a reader": {ca, []string{"os:reader"}, begins, nil, &Problem{"TalosconfigRoleTooLow", `the client certificate of context "c1" has the role os:reader; the hub needs os:admin`}},
		"an operator": {
			ca, []string{"os:operator", "os:etcd:backup"}, begins, nil,
			&Problem{"TalosconfigRoleTooLow", `the client certificate of context "c1" has the role os:operator, os:etcd:backup; the hub needs os:admin`},
		},
		"nobody": {ca, nil, begins, nil, &Problem{"TalosconfigRoleTooLow", `the client certificate of context "c1" has no role; the hub needs os:admin`}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			kube, talos := files(t, row.signer, row.roles...)
			g.Expect(kube.Check(row.at)).To(Equal(row.kube))
			g.Expect(talos.Check(row.at)).To(Equal(row.talos))
		})
	}
	t.Run("a CA among several", func(t *testing.T) {
		both, err := base64.StdEncoding.DecodeString(other.crt())
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		one, err := base64.StdEncoding.DecodeString(ca.crt())
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		crt, key := ca.pair("os:admin")
		parsed, err := ParseTalosconfig([]byte("contexts: {c1: {endpoints: [10.0.0.1], ca: "+base64.StdEncoding.EncodeToString(append(both, one...))+
			", crt: "+crt+", key: "+key+"}}"), "", "c1")
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(parsed.Check(begins)).To(BeNil(), "while a CA is rotated a file trusts both")
	})
}

// Case A10: a month ahead there is a warning, the same every day.
func TestCaseA10Warning(t *testing.T) {
	g := NewWithT(t)
	kube, err := ParseKubeconfig(kubeconfig(t), KubeconfigOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	talos, err := ParseTalosconfig(talosconfig(t, "c1"), "", "c1")
	g.Expect(err).NotTo(HaveOccurred())
	month := ends.Add(-30 * 24 * time.Hour)
	g.Expect(kube.Warning(month.Add(-time.Second))).To(BeNil())
	for _, at := range []time.Time{month.Add(time.Second), ends.Add(-time.Hour)} {
		g.Expect(kube.Warning(at)).To(Equal(&Problem{"ExpiringSoon", `the client certificate of user "admin" ends on 2027-01-02`}))
		g.Expect(talos.Warning(at)).To(Equal(&Problem{"ExpiringSoon", `the client certificate of context "c1" ends on 2027-01-02`}))
	}
}

// A kubeconfig that does not check the server is used if the user says so, and only then.
func TestCaseA14InsecureWithConsent(t *testing.T) {
	g := NewWithT(t)
	data := []byte(anyCA.ReplaceAllString(string(kubeconfig(t)), "insecure-skip-tls-verify: true"))
	_, err := ParseKubeconfig(data, KubeconfigOptions{})
	g.Expect(err).To(MatchError(ErrInvalid))
	parsed, err := ParseKubeconfig(data, KubeconfigOptions{AllowInsecure: true})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(parsed.Config.Insecure).To(BeTrue())
}

// Files of several contexts are cut down to the one that was chosen: nobody asked for the keys of other clusters.
func TestMinify(t *testing.T) {
	g := NewWithT(t)
	data := kubeconfig(t, "contexts:", "contexts:\n- name: other\n  context: {cluster: prod, user: other}",
		"users:", "users:\n- name: other\n  user: {token: secret}")
	kube, err := ParseKubeconfig(data, KubeconfigOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(kube.Several()).To(BeTrue())
	g.Expect(kube.Minify()).NotTo(ContainSubstring("secret"))
	other, err := ParseKubeconfig(data, KubeconfigOptions{Context: "other"})
	g.Expect(err).NotTo(HaveOccurred())
	small, err := other.Minify()
	g.Expect(err).NotTo(HaveOccurred())
	again, err := ParseKubeconfig(small, KubeconfigOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again.Config.BearerToken).To(Equal("secret"), "the chosen one is the current one from now on")
	g.Expect(again.Several()).To(BeFalse())

	talos, err := ParseTalosconfig(talosconfig(t, "foo", "c1"), "", "c1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(talos.Several()).To(BeTrue())
	small, err = talos.Minify()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(small)).NotTo(ContainSubstring("foo"))
	cut, err := ParseTalosconfig(small, "", "c1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cut.Several()).To(BeFalse())
	g.Expect(cut.Context).To(Equal(talos.Context))
}
