// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/siderolabs/talos/pkg/machinery/role"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// wrongFiles is one import that is refused: what is changed in the files of cluster one, and all that the CLI says.
type wrongFiles struct {
	kubeconfig, talosconfig func(string) string
	args                    []string
	says                    string
}

func replace(old, replacement string) func(string) string {
	return func(data string) string {
		Expect(data).To(ContainSubstring(old))
		return strings.ReplaceAll(data, old, replacement)
	}
}

// field is the only value of a field in a document.
func field(document []byte, name string) string {
	GinkgoHelper()
	found := regexp.MustCompile(`(?m)^ *`+name+`: (\S+)$`).FindAllSubmatch(document, -1)
	Expect(found).To(HaveLen(1))
	return string(found[0][1])
}

// refuseWrongFiles imports cluster one under another name with files that cannot work. The texts are what a person reads.
func refuseWrongFiles(ctx context.Context, w *world) {
	GinkgoHelper()
	one := w.Fleet.Cluster("one")
	server, endpoint := one.Endpoint(), one.Node("cp-1").Address()
	as := func(data []byte) func(string) string { return func(string) string { return string(data) } }
	user := func(fields string) func(string) string {
		return func(data string) string {
			before, _, _ := strings.Cut(data, "    client-certificate-data:")
			return before + "    " + fields + "\n"
		}
	}
	reader, err := one.TalosconfigFor("os:reader")
	Expect(err).NotTo(HaveOccurred())
	expired, err := one.TalosconfigWith(role.MakeSet(role.Admin), []string{endpoint}, -time.Hour)
	Expect(err).NotTo(HaveOccurred())
	ca := "    certificate-authority-data:"
	talosCA, kubernetesCA := field(one.Talosconfig(), "ca"), field(one.Kubeconfig(), "certificate-authority-data") // Each is wrong for the other.
	for name, row := range map[string]wrongFiles{
		"no such context": {
			args: []string{"--from-context", "nine"}, says: `talosconfig is invalid: context "nine" is not among the contexts ["one"]`,
		},
		"several contexts (A7)": {
			talosconfig: func(data string) string {
				_, body, found := strings.Cut(data, "    one:\n")
				Expect(found).To(BeTrue())
				return "contexts:\n    foo:\n" + body + "    bar:\n" + body
			},
			says: `talosconfig is invalid: no context is named "other" and there is not exactly one: choose one of ["bar" "foo"]`,
		},
		"no such context of the kubeconfig": {
			args: []string{"--from-kubeconfig-context", "nine"}, says: `kubeconfig is invalid: context "nine" is not among the contexts ["admin@one"]`,
		},
		"the files swapped": {
			kubeconfig: as(one.Talosconfig()), talosconfig: as(one.Kubeconfig()), says: "kubeconfig is invalid: it is a talosconfig and no kubeconfig",
		},
		"an empty file":  {talosconfig: as(nil), says: "talosconfig is invalid: it is empty"},
		"a foreign file": {kubeconfig: as([]byte("kind: Pod")), says: `kubeconfig is invalid: it is a document of kind "Pod" and no kubeconfig`},
		"no https (A6)": {
			kubeconfig: replace(server, strings.Replace(server, "https", "http", 1)),
			says:       `kubeconfig is invalid: cluster "one": server "` + strings.Replace(server, "https", "http", 1) + `" must be https://HOST:PORT`,
		},
		"no scheme (A6)": {
			kubeconfig: replace(server, strings.TrimPrefix(server, "https://")),
			says:       `kubeconfig is invalid: cluster "one": server "` + strings.TrimPrefix(server, "https://") + `" must be https://HOST:PORT`,
		},
		"a program (A14)": {
			kubeconfig: user("exec: {apiVersion: client.authentication.k8s.io/v1, command: aws}"),
			says:       `kubeconfig is invalid: user "admin@one" runs the program "aws" (exec); the hub needs a client certificate or a token`,
		},
		"an auth-provider (A14)": {
			kubeconfig: user("auth-provider: {name: oidc}"),
			says:       `kubeconfig is invalid: user "admin@one" uses the auth-provider "oidc"; the hub needs a client certificate or a token`,
		},
		"a file path (A14)": {
			kubeconfig: user("client-certificate: /home/x/c.crt"),
			says:       `kubeconfig is invalid: user "admin@one" names the file "/home/x/c.crt" as client-certificate; use the fields ending in -data, and token (kubectl config view --flatten)`,
		},
		"insecure without consent (A14)": {
			kubeconfig: replace(ca, "    insecure-skip-tls-verify: true\n"+ca),
			says: `kubeconfig is invalid: cluster "one": insecure-skip-tls-verify is set; give certificate-authority-data instead, or allow it with ` +
				`--allow-insecure-kubeconfig (spec.access.kubernetesServerVerification: Skipped)`,
		},
		"no endpoints": {
			talosconfig: replace("endpoints:\n            - "+endpoint, "endpoints: []"),
			says:        `talosconfig is invalid: context "one": endpoints is empty: list the control planes`,
		},
		"this machine as endpoint": {
			talosconfig: replace(endpoint, "localhost"),
			says:        `talosconfig is invalid: context "one": endpoint "localhost" is not reachable from a hub: list addresses of control planes`,
		},
		"a role too low": {
			talosconfig: as(reader), says: `talosconfig is invalid: the client certificate of context "one" has the role os:reader; the hub needs os:admin`,
		},
		"expired (A10)": {
			talosconfig: as(expired),
			says:        `talosconfig is invalid: the client certificate of context "one" ended on ` + time.Now().Add(-time.Hour).UTC().Format(time.DateOnly),
		},
		"a wrong CA": {
			talosconfig: replace(talosCA, kubernetesCA),
			says:        `talosconfig is invalid: the client certificate of context "one" was signed by "O=talos", and not by the CA of the same file`,
		},
		"a wrong CA of the kubeconfig": {
			kubeconfig: replace(kubernetesCA, talosCA),
			says:       `kubeconfig is invalid: the client certificate of user "admin@one" was signed by "O=kubernetes", and not by the CA of the same file`,
		},
		"an endpoint where nobody is": {
			talosconfig: replace(endpoint, "127.255.255.1"),
			says:        `talosconfig: no endpoint opens the Talos API: 127.255.255.1: no answer; to import it without a look at it: --offline`,
		},
		"a server where nobody is": {
			kubeconfig: replace(server, "https://127.255.255.1:6443"),
			says:       `kubeconfig: https://127.255.255.1:6443 does not open the Kubernetes API: no answer; to import it without a look at it: --offline`,
		},
	} {
		Expect(importing(ctx, w, row)).To(Equal("Error: importing cluster other: "+row.says+"\n"), name)
	}
	Expect(w.ichor(ctx, 0, "cluster", "list", "-o", "name").Out).NotTo(ContainSubstring("other"))
}

// importing is what the CLI says about an import that it refuses.
func importing(ctx context.Context, w *world, row wrongFiles) string {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	args := []string{"cluster", "import", "other"}
	for _, file := range []struct {
		name   string
		data   []byte
		change func(string) string
	}{
		{"kubeconfig", w.Fleet.Cluster("one").Kubeconfig(), row.kubeconfig}, {"talosconfig", w.Fleet.Cluster("one").Talosconfig(), row.talosconfig},
	} {
		text := string(file.data)
		if file.change != nil {
			text = file.change(text)
		}
		path := filepath.Join(dir, file.name)
		Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
		args = append(args, "--from-"+file.name, path)
	}
	return w.ichor(ctx, 1, append(args, row.args...)...).Err
}

// approveLateMachine lets the hub find a machine again whose record somebody deleted, and approves it by the name of its node.
func approveLateMachine(ctx context.Context, w *world) {
	GinkgoHelper()
	Expect(w.client.Delete(ctx, &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one-worker-3"}})).To(Succeed())
	Eventually(func() string { return w.ichor(ctx, 0, "machine", "list").Out }).WithContext(ctx).Should(MatchRegexp(`one-worker-3 .* pending approval`))
	Expect(w.ichor(ctx, 0, "machine", "approve", "worker-3", "--cluster", "one").Out).To(Equal("Machine one-worker-3 is approved: operations take it from now on.\n"))
	Expect(w.ichor(ctx, 0, "machine", "approve", "one-worker-3").Out).To(Equal("Machine one-worker-3 was approved before.\n"))
	Expect(w.ichor(ctx, 0, "machine", "list").Out).NotTo(ContainSubstring("pending approval"))
	Expect(w.ichor(ctx, 1, "machine", "approve", "worker-9").Err).To(ContainSubstring(`no machine "worker-9"`))
}
