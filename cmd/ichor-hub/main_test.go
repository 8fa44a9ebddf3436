// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"ichor.maesh.dev/hub/hack/kustomize"
	"ichor.maesh.dev/hub/hub/standalone"
)

func TestServeRefusesFlagsThatDoNotFit(t *testing.T) {
	for _, test := range []struct {
		name  string
		args  []string
		error string
	}{
		{"standalone without directory", []string{"--standalone"}, "data-dir"},
		{"directory without standalone", []string{"--data-dir", "d"}, "standalone"},
		{"standalone with kubeconfig", []string{"--standalone", "--data-dir", "d", "--kubeconfig", "k"}, "kubeconfig"},
		{"kubeconfig that is not there", []string{"--kubeconfig", "/does/not/exist", "--listen", "0"}, "finding the management cluster"},
		{"lease shorter than its renewal", []string{"--leader-elect-lease-duration", "5s"}, "--leader-elect-lease-duration 5s: want more than --leader-elect-renew-deadline 10s"},
		{"renewal that leaves no second attempt", []string{"--leader-elect-renew-deadline", "2s"}, "--leader-elect-renew-deadline 2s: want more than 1.2 times"},
		{"no pause between attempts", []string{"--leader-elect-retry-period", "0s"}, "--leader-elect-retry-period 0s"},
		{"a namespace that cannot be", []string{"--namespace", "Not/One"}, `--namespace "Not/One": `},
		{"a filter that is no label", []string{"--watch-filter", "a b"}, `--watch-filter "a b": `},
		{"audit of a cluster's API server", []string{"--api-server-audit-log", "a", "--api-server-audit-policy", "p"}, "--api-server-audit-log a: it is for --standalone"},
		{"audit without a policy", []string{"--standalone", "--data-dir", "d", "--api-server-audit-log", "a"}, "api-server-audit-policy"},
		{"no port", []string{"--listen", "nowhere"}, `--listen "nowhere": want an address such as 127.0.0.1:8443, or 0 to serve nothing`},
		{"no certificate", []string{"--listen", ":8443"}, "--tls-cert-file: it is needed to serve on :8443"},
		{"no certificate, no address", nil, "--tls-cert-file: it is needed to serve on :8443"},
		{"certificate without key", []string{"--tls-cert-file", "c"}, "tls-private-key-file"},
		{"certificate that is not there", []string{"--kubeconfig", "/does/not/exist", "--listen", "127.0.0.1:0", "--tls-cert-file", "c", "--tls-private-key-file", "k"}, "finding the management cluster"},
		{"plain HTTP for everybody", []string{"--insecure-plain-http", "--listen", "0.0.0.0:8080"}, `--listen "0.0.0.0:8080": --insecure-plain-http is for a loopback address`},
		{"plain HTTP with a certificate", []string{"--insecure-plain-http", "--tls-cert-file", "c", "--tls-private-key-file", "k"}, "insecure-plain-http"},
		{"external URL without TLS", plain("--external-url", "http://hub.example"), `--external-url "http://hub.example": want a URL without a path`},
		{"external URL with a path", plain("--external-url", "https://hub.example/x"), `--external-url "https://hub.example/x"`},
		{"client without a provider", plain("--oidc-client-id", "ichor"), `--oidc-client-id "ichor": it is about a provider, which --oidc-issuer-url has to name`},
		{"provider without TLS", plain("--oidc-issuer-url", "http://id.example"), `--oidc-issuer-url "http://id.example": want a URL that begins with https://`},
		{"provider without a client", plain("--oidc-issuer-url", "https://id.example"), "--oidc-client-id: it is needed"},
		{"provider without a way back", plain("--oidc-issuer-url", "https://id.example", "--oidc-client-id", "ichor"), "--external-url: it is needed with --oidc-issuer-url"},
		{"session without an end", plain("--session-lifetime", "1000h"), "--session-lifetime 1000h0m0s: want 1m0s to 24h0m0s"},
		{"audit of negative age", plain("--audit-max-age", "-1s"), "--audit-max-age -1s"},
		{"audit of negative size", plain("--audit-max-entries", "-1"), "--audit-max-entries -1"},
		{"audit of negative size in all", plain("--audit-max-total", "-1"), "--audit-max-total -1"},
		{"Secret of sessions in standalone mode", []string{"--standalone", "--data-dir", "d", "--session-secret", "s"}, "session-secret"},
		{"unknown level", []string{"--log-level", "loud"}, "--log-level"},
		{"unknown format", []string{"--log-format", "xml"}, "--log-format"},
		{"argument", []string{"now"}, "now"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := newCommand()
			cmd.SetArgs(append([]string{"serve"}, test.args...))
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			NewWithT(t).Expect(cmd.ExecuteContext(t.Context())).To(MatchError(ContainSubstring(test.error)))
		})
	}
}

// plain is how to serve without a certificate.
func plain(args ...string) []string {
	return append([]string{"--listen", "127.0.0.1:0", "--insecure-plain-http"}, args...)
}

// What the Deployment passes is taken, up to the point where a management cluster is looked for.
func TestServeTakesTheFlagsOfTheDeployment(t *testing.T) {
	g := NewWithT(t)
	objects, err := kustomize.Objects("../../config/default")
	g.Expect(err).NotTo(HaveOccurred())
	deployments := slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() != "Deployment" })
	g.Expect(deployments).To(HaveLen(1))
	deployment := &appsv1.Deployment{}
	g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(deployments[0].Object, deployment)).To(Succeed())
	cmd := newCommand()
	cmd.SetArgs(append(deployment.Spec.Template.Spec.Containers[0].Args, "--listen=127.0.0.1:0", "--kubeconfig=/does/not/exist"))
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	g.Expect(cmd.ExecuteContext(t.Context())).To(MatchError(ContainSubstring("finding the management cluster")))
}

// An address that somebody has is told before anything is started.
func TestServeSaysThatItsAddressIsTaken(t *testing.T) {
	g := NewWithT(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer taken.Close() //nolint:errcheck // The test is over.
	dir := filepath.Join(t.TempDir(), "data")
	cmd := newCommand()
	cmd.SetArgs([]string{"serve", "--standalone", "--data-dir", dir, "--listen", taken.Addr().String()})
	g.Expect(cmd.ExecuteContext(t.Context())).To(MatchError(And(ContainSubstring("--listen "+taken.Addr().String()), ContainSubstring("in use"))))
	g.Expect(dir).NotTo(BeADirectory())
}

func TestCertificateIsForHowTheHubIsAskedFor(t *testing.T) {
	for name, row := range map[string]struct {
		options servingOptions
		hosts   []string
	}{
		"usual":             {servingOptions{listen: "127.0.0.1:8443"}, []string{"localhost", "127.0.0.1", "::1"}},
		"another address":   {servingOptions{listen: "192.0.2.1:8443"}, []string{"localhost", "127.0.0.1", "::1", "192.0.2.1"}},
		"all of them":       {servingOptions{listen: ":8443"}, []string{"localhost", "127.0.0.1", "::1"}},
		"by another name":   {servingOptions{listen: "[::1]:8443", externalURL: "https://hub.example:444"}, []string{"localhost", "127.0.0.1", "::1", "hub.example"}},
		"nowhere":           {servingOptions{listen: "0"}, nil},
		"plain HTTP":        {servingOptions{listen: "127.0.0.1:8080", plain: true}, nil},
		"given certificate": {servingOptions{listen: "127.0.0.1:8443", certFile: "c"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			if own, err := os.Hostname(); err == nil && row.hosts != nil {
				row.hosts = append(row.hosts, own)
			}
			g.Expect(row.options.hosts()).To(ConsistOf(row.hosts))
		})
	}
}

func TestLoginLinkIsForAHubThatHasServed(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	run := func() (string, error) {
		var out bytes.Buffer
		cmd := newCommand()
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"login-link", "--data-dir", dir})
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	_, err := run()
	g.Expect(err).To(MatchError(ContainSubstring("no standalone hub has served from it")))
	g.Expect(os.WriteFile(filepath.Join(dir, "url"), []byte("https://127.0.0.1:1\n"), 0o600)).To(Succeed())
	out, err := run()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(MatchRegexp(`^Sign in once, within 10 minutes: https://127\.0\.0\.1:1/auth/link\?code=\w+\n$`))
	links, err := os.ReadDir(standalone.LoginLinks(dir))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(links).To(HaveLen(1))
}

func TestControlPlaneIsNotForPeople(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	cmd := newCommand()
	cmd.SetArgs([]string{"--help"})
	cmd.SetOut(&out)
	g.Expect(cmd.ExecuteContext(t.Context())).To(Succeed())
	g.Expect(out.String()).To(ContainSubstring("serve"))
	g.Expect(out.String()).NotTo(ContainSubstring("control-plane"))
}
