// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"regexp"
	"testing"

	. "github.com/onsi/gomega"
)

func TestParseKubeconfig(t *testing.T) {
	g := NewWithT(t)
	parsed, err := ParseKubeconfig(kubeconfig(t))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(parsed.Config.Host).To(Equal("https://10.0.0.10:6443"))
	g.Expect(parsed.Expires).To(BeTemporally("==", ends))
	g.Expect(parsed.Config.CAData).NotTo(BeEmpty())
}

var (
	certificate = regexp.MustCompile(`client-certificate-data: .*`)
	anyKey      = regexp.MustCompile(`client-key-data: .*`)
)

// user replaces how the user of the kubeconfig proves who it is.
func user(t *testing.T, fields string) []byte {
	t.Helper()
	return []byte(anyKey.ReplaceAllString(certificate.ReplaceAllString(string(kubeconfig(t)), fields), "#"))
}

// Cases A6 and A14: what cannot work from a hub, or must not, is refused with the reason.
func TestCaseA6A14KubeconfigRefused(t *testing.T) {
	server := "https://10.0.0.10:6443"
	for name, row := range map[string]struct {
		data []byte
		err  string
	}{
		"no YAML":            {[]byte("\x00{"), "kubeconfig is invalid: "},
		"empty":              {nil, `kubeconfig is invalid: current-context "" is not among the contexts []`},
		"no such context":    {kubeconfig(t, "current-context: admin@prod", "current-context: x"), `kubeconfig is invalid: current-context "x" is not among the contexts ["admin@prod"]`},
		"no such cluster":    {kubeconfig(t, "cluster: prod,", "cluster: x,"), `kubeconfig is invalid: cluster "x" of context "admin@prod" is not among the clusters ["prod"]`},
		"no such user":       {kubeconfig(t, "user: admin}", "user: x}"), `kubeconfig is invalid: user "x" of context "admin@prod" is not among the users ["admin"]`},
		"no scheme":          {kubeconfig(t, server, "10.0.0.10:6443"), "kubeconfig is invalid: server"},
		"no https":           {kubeconfig(t, server, "http://10.0.0.10:6443"), `kubeconfig is invalid: server "http://10.0.0.10:6443" of cluster "prod" must be https://HOST:PORT`},
		"no host":            {kubeconfig(t, server, "https:///x"), `must be https://HOST:PORT`},
		"insecure":           {kubeconfig(t, "    server:", "    insecure-skip-tls-verify: true\n    server:"), `cluster "prod" has insecure-skip-tls-verify; give certificate-authority-data instead`},
		"CA in a file":       {kubeconfig(t, "    server:", "    certificate-authority: /pki/ca.crt\n    server:"), `cluster "prod" names the file "/pki/ca.crt" as certificate-authority`},
		"a program":          {user(t, "exec: {apiVersion: client.authentication.k8s.io/v1, command: aws}"), `user "admin" runs the program "aws" (exec); the hub needs a client certificate or a token`},
		"an auth-provider":   {user(t, "auth-provider: {name: oidc}"), `user "admin" uses the auth-provider "oidc"`},
		"certificate file":   {user(t, "client-certificate: /c.crt"), `user "admin" names files`},
		"key file":           {user(t, "client-key: /c.key"), `user "admin" names files`},
		"token file":         {user(t, "tokenFile: /token"), `user "admin" names files`},
		"no certificate":     {[]byte(certificate.ReplaceAllString(string(kubeconfig(t)), "client-certificate-data: bm9uZQ==")), `kubeconfig is invalid: client-certificate-data of user "admin": no PEM block found`},
		"a key without data": {kubeconfig(t, "client-key-data:", "x:"), "kubeconfig is invalid: "},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := ParseKubeconfig(row.data)
			g.Expect(err).To(MatchError(ErrInvalid))
			g.Expect(err).To(MatchError(ContainSubstring(row.err)))
		})
	}
}

func TestKubeconfigWithToken(t *testing.T) {
	g := NewWithT(t)
	parsed, err := ParseKubeconfig(user(t, "token: secret"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(parsed.Config.BearerToken).To(Equal("secret"))
	g.Expect(parsed.Expires).To(BeZero())
}

// Case A14: a proxy is honoured.
func TestCaseA14KubeconfigWithProxy(t *testing.T) {
	g := NewWithT(t)
	parsed, err := ParseKubeconfig(kubeconfig(t, "    server:", "    proxy-url: http://proxy.example:3128\n    server:"))
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
			g.Expect(parsed.Expires).To(BeTemporally("==", ends))
		})
	}
}

func TestTalosconfigRefused(t *testing.T) {
	good := talosconfig(t, "c1")
	endpoints := `[10.0.0.1, "[fd00::1]:50000"]`
	unreachable := "is not reachable from a hub: list addresses of control planes"
	line := func(field string) *regexp.Regexp { return regexp.MustCompile("(?m)^    " + field + ": .*$") }
	without := func(field string) []byte { return line(field).ReplaceAll(good, nil) }
	for name, row := range map[string]struct {
		data []byte
		err  string
	}{
		"no YAML":          {[]byte("\x00{"), "talosconfig is invalid: "},
		"no endpoints":     {replaced(good, endpoints, "[]"), `context "c1": endpoints is empty: list the control planes`},
		"localhost":        {replaced(good, endpoints, "[localhost]"), `endpoint "localhost" ` + unreachable},
		"localhost, port":  {replaced(good, endpoints, `["localhost:50000"]`), unreachable},
		"loopback":         {replaced(good, endpoints, "[127.0.0.1]"), unreachable},
		"loopback, second": {replaced(good, endpoints, "[10.0.0.1, 127.0.0.1]"), `endpoint "127.0.0.1" ` + unreachable},
		"loopback, v6":     {replaced(good, endpoints, `["[::1]:50000"]`), unreachable},
		"unspecified":      {replaced(good, endpoints, "[0.0.0.0]"), unreachable},
		"empty endpoint":   {replaced(good, endpoints, `[""]`), unreachable},
		"no crt":           {without("crt"), "ca, crt and key are needed: the hub authenticates by certificate"},
		"no key":           {without("key"), "ca, crt and key are needed"},
		"no ca":            {without("ca"), "ca, crt and key are needed"},
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

func FuzzParseKubeconfig(f *testing.F) {
	f.Add(kubeconfig(f))
	f.Add([]byte("contexts: [{name: a, context: null}]\nclusters: [{name: b, cluster: null}]\nusers: [null]\ncurrent-context: a\n"))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if parsed, err := ParseKubeconfig(data); err == nil && (parsed.Config.Insecure || parsed.Config.ExecProvider != nil || parsed.Config.CAFile != "") {
			t.Fatalf("let through: %+v", parsed.Config)
		}
	})
}

func FuzzParseTalosconfig(f *testing.F) {
	f.Add(talosconfig(f, "c1"), "", "c1")
	f.Add([]byte("contexts: {c1: null}"), "c1", "")
	f.Add([]byte("contexts: [a]"), "", "")
	f.Fuzz(func(t *testing.T, data []byte, wanted, cluster string) {
		if parsed, err := ParseTalosconfig(data, wanted, cluster); err == nil && (parsed.Context == nil || len(parsed.Context.Endpoints) == 0 || parsed.Expires.IsZero()) {
			t.Fatalf("let through: %+v", parsed)
		}
	})
}
