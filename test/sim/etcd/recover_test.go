// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/test/sim/etcd"
)

// join lets a machine's etcd start in the background.
func (c *cluster) join(t *testing.T, name string) <-chan error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() { done <- c.Join(ctx, name) }()
	return done
}

// wipe takes all data away, as resets do.
func (c *cluster) wipe() {
	for _, name := range c.names {
		c.Down(name)
		c.Wipe(name)
	}
}

func TestRecover(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(3)
	before := c.MemberID("a")
	data, revision, err := c.Snapshot(t.Context(), "b")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(c.Bootstrap("a", true, false)).To(MatchError(etcd.ErrHasData))
	c.wipe()
	g.Expect(c.Bootstrap("a", true, false)).To(MatchError(etcd.ErrNotPreparing))
	g.Expect(c.Recover("a", data)).To(MatchError(etcd.ErrNotPreparing))

	first, second := c.join(t, "a"), c.join(t, "b")
	g.Eventually(c.Preparing).WithArguments("a").Should(BeTrue())
	g.Expect(c.Recover("a", data)).To(Succeed())
	g.Expect(c.Bootstrap("a", true, false)).To(Succeed())
	g.Eventually(first).Should(Receive(BeNil()))
	g.Expect(c.Preparing("a")).To(BeFalse())
	status, err := c.Status(t.Context(), "a")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status.Index).To(BeNumerically(">=", revision))
	g.Expect(status.Index).To(BeNumerically("<", revision+10), "it goes on where the snapshot ends")
	g.Expect(status.MemberID).NotTo(Equal(before), "it is another member")
	g.Expect(c.Bootstrap("a", true, false)).To(MatchError(etcd.ErrHasData))

	// The other one joins as a learner, and votes when it has caught up.
	g.Eventually(func() bool {
		members, err := c.Members(t.Context(), "a")
		return err == nil && len(members) == 2 && members[1].Learner
	}).Should(BeTrue())
	g.Eventually(func() <-chan error {
		c.clock.Step(time.Second)
		return second
	}).Should(Receive(BeNil()))
	g.Expect(c.Members(t.Context(), "b")).To(HaveEach(HaveField("Learner", false)))
}

func TestRecoverFromASnapshotThatIsNone(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil     func([]byte) []byte
		skip      bool
		recovered bool
	}{
		"as it was taken":     {spoil: bytes.Clone, recovered: true},
		"another hash":        {spoil: func(data []byte) []byte { data[len(data)-1] ^= 1; return data }},
		"without hash":        {spoil: func(data []byte) []byte { return data[:len(data)-32] }},
		"a copied database":   {spoil: func(data []byte) []byte { return data[:len(data)-32] }, skip: true, recovered: true},
		"something else":      {spoil: func([]byte) []byte { return []byte("hello") }, skip: true},
		"nothing":             {spoil: func([]byte) []byte { return nil }},
		"an ignored bad hash": {spoil: func(data []byte) []byte { data[len(data)-1] ^= 1; return data }, skip: true, recovered: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster(1)
			data, _, err := c.Snapshot(t.Context(), "a")
			g.Expect(err).NotTo(HaveOccurred())
			c.wipe()
			joined := c.join(t, "a")
			g.Eventually(c.Preparing).WithArguments("a").Should(BeTrue())
			g.Expect(c.Recover("a", tt.spoil(bytes.Clone(data)))).To(Succeed())
			g.Expect(c.Bootstrap("a", true, tt.skip)).To(Succeed())
			if tt.recovered {
				g.Eventually(joined).Should(Receive(BeNil()))
				return
			}
			g.Consistently(joined, "50ms").ShouldNot(Receive())
			g.Expect(c.Preparing("a")).To(BeTrue(), "it waits for a better one")
		})
	}
}
