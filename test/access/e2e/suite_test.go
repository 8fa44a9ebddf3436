// SPDX-License-Identifier: Apache-2.0

// Package e2e_test holds RBAC and the admission policies to what docs/security.md says, with kubectl on the real API server.
package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/config/rbac"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/test/framework"
)

// The namespaces: people have their roles in one of them only.
const (
	ours   = "team-a"
	theirs = "team-b"
)

// Whoever may write operations, and their status, by a role that is none of ours: somebody, and a controller that applies Git.
const (
	writer = "writer"
	git    = "system:serviceaccount:argocd:application-controller"
)

var (
	plane *framework.Plane
	admin client.Client
)

func TestMain(m *testing.M) {
	if !framework.MayRun(os.Stderr, "kubectl") {
		os.Exit(1)
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	if _, err := framework.Binary("kubectl"); err != nil {
		return 0, nil // MayRun has said so.
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	if plane, err = framework.StartPlane(ctx); err != nil {
		return 0, err
	}
	defer func() { _ = plane.Stop() }()
	if admin, err = client.New(plane.Config, client.Options{Scheme: scheme.New()}); err != nil {
		return 0, err
	}
	if err := errors.Join(bind(ctx), inForce(ctx)); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// bind makes the namespaces, and gives users named like the roles their roles in one of them.
func bind(ctx context.Context) error {
	for _, namespace := range []string{ours, theirs} {
		if err := admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
			return err
		}
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ours, Name: writer}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"ichor.maesh.dev"}, Resources: []string{"talosoperations", "talosoperations/status"},
		Verbs: []string{"create", "get", "patch", "update"},
	}}}
	bindings := []client.Object{role, bindingTo("Role", writer, writer, git)}
	for user, role := range map[string]string{"viewer": rbac.ViewerRole, "operator": rbac.OperatorRole, "admin": rbac.AdminRole} {
		bindings = append(bindings, bindingTo("ClusterRole", role, user))
	}
	for _, object := range bindings {
		if err := admin.Create(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// bindingTo gives users a role in our namespace.
func bindingTo(kind, role string, users ...string) *rbacv1.RoleBinding {
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ours, Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
	}
	for _, user := range users {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
	}
	return binding
}

// kubectl runs kubectl as a user, with the administrator's right to be anybody; empty is the administrator. It returns what kubectl said.
func kubectl(ctx context.Context, user, input string, args ...string) (string, error) {
	binary, err := framework.Binary("kubectl")
	if err != nil {
		return "", err
	}
	args = append([]string{"--kubeconfig", plane.Kubeconfig}, args...)
	if user != "" {
		args = append(args, "--as", user)
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Stdin = strings.NewReader(input)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	return out.String(), err
}

// inForce waits for the policies, which the API server looks for once a second.
func inForce(ctx context.Context) error {
	for _, object := range []string{cluster("probe"), machine("probe"), operation("probe", "talos", "", "")} {
		if out, err := kubectl(ctx, "", object, "-n", ours, "create", "-f", "-"); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	for _, probe := range []struct {
		user, input, want string
		args              []string
	}{
		{"operator", operation("other", "shutdown", "shutdown: {action: Stop, snapshot: None}", ""), "denied request", nil},
		{"operator", operation("other", "talos", "", ""), "ichor.maesh.dev/created-by: operator", []string{"-o", "yaml"}},
		{"operator", entry("probe", "somebody", "Client", time.Now()), "denied request", nil},
		{"operator", "", "denied request", []string{"patch", "talosmachine", "probe", "--type=merge", "-p", `{"spec":{"removal":{"reason":"x"}}}`}},
		{"operator", "", "denied request", []string{"annotate", "taloscluster", "probe", "ichor.maesh.dev/take-over=x"}},
		{writer, "", "denied request", []string{"patch", "talosoperation", "probe", "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Paused"}}`}},
	} {
		args := append([]string{"-n", ours, "--dry-run=server"}, probe.args...)
		if probe.input != "" {
			args = append([]string{"create", "-f", "-"}, args...)
		}
		var out string
		err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			out, _ = kubectl(ctx, probe.user, probe.input, args...)
			return strings.Contains(out, probe.want), nil
		})
		if err != nil {
			return fmt.Errorf("%s %s%v: %w: %s", probe.user, probe.input, probe.args, err, out)
		}
	}
	return nil
}

// create makes an object as the administrator.
func create(t *testing.T, manifest string) {
	t.Helper()
	out, err := kubectl(t.Context(), "", manifest, "-n", ours, "create", "-f", "-")
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), out)
}

func operation(name, kind, parameters, annotations string) string {
	return fmt.Sprintf(`{apiVersion: ichor.maesh.dev/v1alpha1, kind: TalosOperation, metadata: {name: %s, annotations: {%s}},
spec: {clusterName: c1, kind: %s, %s}}`, name, annotations, kind, parameters)
}

// entryName is the name of an entry of a time.
func entryName(at time.Time, suffix string) string {
	return strings.Replace(at.UTC().Format("20060102t150405.000000000z"), ".", "-", 1) + "-" + suffix
}

// entry is an entry of a time, whose name ends with a suffix of five letters.
func entry(suffix, user, reporter string, at time.Time) string {
	return entryNamed(entryName(at, suffix), user, reporter, at)
}

func entryNamed(name, user, reporter string, at time.Time) string {
	return fmt.Sprintf(`{apiVersion: ichor.maesh.dev/v1alpha1, kind: AuditEntry, metadata: {name: %s},
spec: {time: %q, user: %s, reporter: %s, action: CreateOperation, result: Done}}`, name, at.UTC().Format("2006-01-02T15:04:05.000000Z"), user, reporter)
}

func cluster(name string) string {
	return fmt.Sprintf(`{apiVersion: ichor.maesh.dev/v1alpha1, kind: TalosCluster, metadata: {name: %s, annotations: {ichor.maesh.dev/owner-id: one,
ichor.maesh.dev/unsafe: op}}, spec: {talosVersion: v1.13.6}}`, name)
}

func machine(name string) string {
	return fmt.Sprintf(`{apiVersion: ichor.maesh.dev/v1alpha1, kind: TalosMachine, metadata: {name: %s, labels: {cluster.x-k8s.io/cluster-name: c1}},
spec: {clusterName: c1, role: Worker, address: 127.0.0.1, approval: Pending}}`, name)
}
