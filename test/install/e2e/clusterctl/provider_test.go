// SPDX-License-Identifier: Apache-2.0

// Package clusterctl_test hands the provider to the real clusterctl.
package clusterctl_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/hack/kustomize"
	"ichor.maesh.dev/hub/hack/release/assets"
	"ichor.maesh.dev/hub/test/framework"
)

const (
	config  = "../../../../config"
	version = "v0.1.0"
)

func TestMain(m *testing.M) {
	if !framework.MayRun(os.Stderr, "clusterctl") {
		if os.Getenv(framework.RequireVariable) == "1" {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// repository is a local repository of a release, and the configuration of clusterctl that names it.
type repository struct{ dir, config string }

func release(t *testing.T) repository {
	t.Helper()
	g := NewWithT(t)
	r := repository{dir: t.TempDir()}
	_, err := assets.Write(assets.Options{Version: version, Image: assets.Image, Config: config, Directory: r.dir})
	g.Expect(err).NotTo(HaveOccurred())
	r.config = filepath.Join(r.dir, "clusterctl.yaml")
	content := fmt.Sprintf("providers:\n- name: ichor\n  type: AddonProvider\n  url: %s\n", filepath.Join(r.dir, assets.Provider, version, "addon-components.yaml"))
	g.Expect(os.WriteFile(r.config, []byte(content), 0o600)).To(Succeed())
	return r
}

// clusterctl runs the real client, with nothing of the user's and without a network.
func (r repository) clusterctl(t *testing.T, env []string, args ...string) (out, errOut string, err error) {
	t.Helper()
	binary, err := framework.Binary("clusterctl")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(t.Context(), binary, append(args, "--config", r.config)...)
	cmd.Env = append([]string{"HOME=" + r.dir, "XDG_CONFIG_HOME=" + r.dir, "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "GOPROXY=off", "HTTPS_PROXY=http://127.0.0.1:1"}, env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

func (r repository) generate(t *testing.T, env []string, flags ...string) []*unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	out, errOut, err := r.clusterctl(t, env, append([]string{"generate", "provider", "--addon", "ichor:" + version}, flags...)...)
	g.Expect(err).NotTo(HaveOccurred(), errOut)
	objects, err := kustomize.Read([]byte(out))
	g.Expect(err).NotTo(HaveOccurred(), out)
	return objects
}

func deployment(t *testing.T, objects []*unstructured.Unstructured) *appsv1.Deployment {
	t.Helper()
	g := NewWithT(t)
	at := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Deployment" })
	g.Expect(at).NotTo(Equal(-1))
	made := &appsv1.Deployment{}
	g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(objects[at].Object, made, true)).To(Succeed())
	return made
}

// Nothing is lost on the way: clusterctl fills in variables wherever it sees one, and admission policies are full of what looks like them.
func TestGenerateGivesAllOfTheProvider(t *testing.T) {
	g := NewWithT(t)
	wanted, err := kustomize.Objects(filepath.Join(config, "clusterctl"))
	g.Expect(err).NotTo(HaveOccurred())
	got := release(t).generate(t, nil)
	g.Expect(got).To(HaveLen(len(wanted)))
	found := map[string]*unstructured.Unstructured{}
	for _, object := range got {
		g.Expect(object.GetLabels()).To(HaveKeyWithValue("cluster.x-k8s.io/provider", "addon-ichor"), object.GetName())
		found[object.GetKind()+" "+object.GetName()] = object
	}
	for _, object := range wanted {
		name := object.GetKind() + " " + object.GetName()
		g.Expect(found).To(HaveKey(name))
		if object.GetKind() == "Deployment" || object.GetKind() == "Namespace" {
			continue
		}
		for _, field := range []string{"spec", "rules", "subjects", "roleRef", "aggregationRule", "data"} {
			if want, ok := object.Object[field]; ok {
				g.Expect(found[name].Object[field]).To(Equal(want), "%s of %s", field, name)
			}
		}
	}
}

func TestVariablesHaveValuesThatWork(t *testing.T) {
	g := NewWithT(t)
	r := release(t)
	usual := deployment(t, r.generate(t, nil))
	g.Expect(*usual.Spec.Replicas).To(BeEquivalentTo(2))
	container := usual.Spec.Template.Spec.Containers[0]
	g.Expect(container.Name).To(Equal("manager"))
	g.Expect(container.Image).To(Equal(assets.Image + ":" + version))
	g.Expect(expanded(container)).To(ContainElements("--log-level=info", "--external-url=", "--oidc-issuer-url=", "--oidc-groups-claim=", "--namespace=", "--watch-filter="))

	chosen := deployment(t, r.generate(t, []string{
		"ICHOR_EXTERNAL_URL=https://ichor.example.com", "ICHOR_OIDC_ISSUER_URL=https://id.example.com", "ICHOR_OIDC_CLIENT_ID=ichor",
		"ICHOR_NAMESPACE=fleet", "ICHOR_WATCH_FILTER=blue",
	}))
	g.Expect(expanded(chosen.Spec.Template.Spec.Containers[0])).To(ContainElements(
		"--external-url=https://ichor.example.com", "--oidc-issuer-url=https://id.example.com", "--oidc-client-id=ichor",
		"--namespace=fleet", "--watch-filter=blue"))
}

// expanded are the arguments of a container as the kubelet passes them.
func expanded(container corev1.Container) []string {
	var list []string
	for _, arg := range container.Args {
		for _, variable := range container.Env {
			arg = strings.ReplaceAll(arg, "$("+variable.Name+")", variable.Value)
		}
		list = append(list, arg)
	}
	return list
}

// Every variable is told, with its value: that is how people find out about them.
func TestVariablesAreTold(t *testing.T) {
	g := NewWithT(t)
	out, errOut, err := release(t).clusterctl(t, nil, "generate", "provider", "--addon", "ichor:"+version, "--describe")
	g.Expect(err).NotTo(HaveOccurred(), errOut)
	for _, variable := range []string{"ICHOR_LOG_LEVEL", "ICHOR_EXTERNAL_URL", "ICHOR_OIDC_ISSUER_URL", "ICHOR_OIDC_CLIENT_ID", "ICHOR_IMAGE_FACTORY", "ICHOR_NAMESPACE", "ICHOR_WATCH_FILTER"} {
		g.Expect(out).To(ContainSubstring(variable))
	}
}

// Another namespace is asked for by a flag, and the certificate is for the Service there.
func TestAnotherNamespace(t *testing.T) {
	g := NewWithT(t)
	for _, object := range release(t).generate(t, nil, "--target-namespace", "elsewhere") {
		if object.GetNamespace() != "" {
			g.Expect(object.GetNamespace()).To(Equal("elsewhere"), object.GetName())
		}
		if object.GetKind() == "Certificate" {
			names, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "dnsNames")
			g.Expect(strings.Join(names, " ")).To(ContainSubstring("ichor-hub.elsewhere.svc"))
		}
	}
}

// clusterctl does not know that admission policies are in no namespace. The API server does, and takes them.
func TestTheAPIServerTakesPoliciesWithANamespace(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	plane, err := framework.StartPlane(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(plane.Stop()).To(Succeed()) })
	c, err := client.New(plane.Config, client.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	taken := 0
	for _, object := range release(t).generate(t, nil) {
		if object.GroupVersionKind().Group != "admissionregistration.k8s.io" {
			continue
		}
		object.SetName(object.GetName() + "-of-clusterctl")
		g.Expect(c.Create(ctx, object)).To(Succeed(), object.GetName())
		g.Expect(object.GetNamespace()).To(BeEmpty())
		taken++
	}
	g.Expect(taken).To(Equal(12))
}

func TestTheProviderIsListed(t *testing.T) {
	g := NewWithT(t)
	out, errOut, err := release(t).clusterctl(t, nil, "config", "repositories")
	g.Expect(err).NotTo(HaveOccurred(), errOut)
	g.Expect(out).To(MatchRegexp(`(?m)^ichor +AddonProvider +\S+addon-ichor`))
}
