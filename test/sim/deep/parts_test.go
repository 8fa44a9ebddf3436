// SPDX-License-Identifier: Apache-2.0

package deep

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ichor.maesh.dev/hub/test/sim/kubeapi"
)

func TestArguments(t *testing.T) {
	g := NewWithT(t)
	line := newArguments([]string{"--a=1", "--b=2", "--c=3", "--c=4"})
	line.set("--b=x", "--c=5", "--c=6")
	line.setDefault("--a=default")
	line.setDefault("--d=default")
	g.Expect(line.list).To(Equal([]string{"--a=1", "--b=x", "--c=5", "--c=6", "--d=default"}))
}

func TestPrefixOfASecret(t *testing.T) {
	for value, want := range map[string]string{
		"k8s:enc:secretbox:v1:key2:\x01:\x02": "k8s:enc:secretbox:v1:key2:",
		"k8s:enc:aescbc:v1:key1:abc":          "k8s:enc:aescbc:v1:key1:",
		"k8s\x00plain:a:b:c:d:e":              "",
		"":                                    "",
	} {
		NewWithT(t).Expect(prefixOf([]byte(value))).To(Equal(want), "%q", value)
	}
}

func TestInitialCluster(t *testing.T) {
	members := []*etcdserverpb.Member{
		{ID: 1, Name: "cp-1", PeerURLs: []string{"https://127.0.0.1:2380"}},
		{ID: 2, PeerURLs: []string{"https://127.0.0.2:2380"}},
	}
	NewWithT(t).Expect(initialCluster(members, 2, "cp-2")).To(Equal("cp-1=https://127.0.0.1:2380,cp-2=https://127.0.0.2:2380"))
}

func TestTailReadsWholeLines(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "log")
	reader := &tail{path: path}
	g.Expect(reader.read()).To(BeEmpty(), "there is no file yet")
	for _, step := range []struct {
		content string
		want    []string
	}{
		{"a\nb", []string{"a"}}, {"a\nbc", nil}, {"a\nbc\nd\n", []string{"bc", "d"}}, {"a\nbc\nd\n", nil},
	} {
		g.Expect(os.WriteFile(path, []byte(step.content), 0o600)).To(Succeed())
		lines, err := reader.read()
		g.Expect(err).NotTo(HaveOccurred())
		var got []string
		for _, line := range lines {
			got = append(got, string(line))
		}
		g.Expect(got).To(Equal(step.want), "%q", step.content)
	}
}

func pod(uid, version string) kubeapi.Object {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: types.UID(uid), ResourceVersion: version}}
}

func TestCacheKeepsTheNewest(t *testing.T) {
	g := NewWithT(t)
	c := newCache()
	c.fill([]kubeapi.Object{pod("1", "9")})
	g.Expect(c.filled).To(BeClosed())
	g.Expect(c.put(pod("1", "10"))).To(BeTrue(), "versions are numbers, not words")
	g.Expect(c.put(pod("1", "9"))).To(BeFalse(), "the watch is behind what was written")
	g.Expect(c.get("n", "p").GetResourceVersion()).To(Equal("10"))
	c.removed(pod("1", "10"))
	g.Expect(c.get("n", "p")).To(BeNil())
	g.Expect(c.put(pod("1", "10"))).To(BeFalse(), "it is gone")
	g.Expect(c.put(pod("2", "3"))).To(BeTrue(), "another of its name")
	c.removed(pod("1", "10"))
	g.Expect(c.get("n", "p")).NotTo(BeNil())
	c.fill([]kubeapi.Object{pod("1", "2")})
	g.Expect(c.get("n", "p").GetUID()).To(BeEquivalentTo("1"), "a recovered etcd brings back what was gone")
}
