// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	"ichor.maesh.dev/hub/test/sim/etcd"
	"ichor.maesh.dev/hub/test/sim/timing"
)

// cluster is an etcd of n members on a fake clock.
type cluster struct {
	*etcd.Cluster
	clock   *clocktesting.FakeClock
	names   []string
	leaders []string // As the callback was told.
}

func newCluster(n int) *cluster {
	c := &cluster{clock: clocktesting.NewFakeClock(time.Unix(1700000000, 0))}
	timings := timing.Timings{Election: time.Second, EtcdJoin: time.Second}
	c.Cluster = etcd.New("c", c.clock, timings, func(leader string) { c.leaders = append(c.leaders, leader) })
	for i := range n {
		name := string(rune('a' + i))
		c.Add(name, "127.0.0."+name)
		c.names = append(c.names, name)
	}
	return c
}

func TestALeaderThatLeavesCausesAnElection(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(3)
	before, err := c.Status(t.Context(), "b")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(before.Leader).To(Equal(c.MemberID("a")))

	c.Down("a")
	_, err = c.Members(t.Context(), "b")
	g.Expect(err).To(MatchError(etcd.ErrNoLeader))
	_, err = c.Status(t.Context(), "a")
	g.Expect(err).To(MatchError(etcd.ErrNotRunning))
	c.clock.Step(time.Second)

	g.Expect(c.Leader()).To(Equal("b"))
	g.Expect(c.Members(t.Context(), "b")).To(HaveLen(3), "a member that is down is a member")
	after, err := c.Status(t.Context(), "b")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(after.Term).To(BeNumerically(">", before.Term))
	g.Expect(c.Join(t.Context(), "a")).To(Succeed())
	g.Expect(c.Leader()).To(Equal("b"), "coming back takes nothing from the leader")
	g.Expect(c.leaders).To(Equal([]string{"", "b", "b"}))
}

func TestQuorum(t *testing.T) {
	for _, tt := range []struct {
		members, down int
		healthy       bool
	}{
		{1, 1, false}, {2, 1, false}, {3, 1, true}, {3, 2, false}, {4, 1, true}, {4, 2, false}, {5, 2, true}, {5, 3, false},
	} {
		g := NewWithT(t)
		c := newCluster(tt.members)
		for i := range tt.down {
			c.Down(c.names[i])
		}
		c.clock.Step(time.Second)
		g.Expect(c.Healthy()).To(Equal(tt.healthy), "%d members, %d down", tt.members, tt.down)
		for i := range tt.down {
			g.Expect(c.Join(t.Context(), c.names[i])).To(Succeed())
		}
		c.clock.Step(time.Second)
		g.Expect(c.Healthy()).To(BeTrue())
	}
}

func TestForfeit(t *testing.T) {
	g := NewWithT(t)
	_, err := newCluster(1).Forfeit(t.Context(), "a")
	g.Expect(err).To(MatchError(etcd.ErrSingleMember))

	c := newCluster(3)
	g.Expect(c.Forfeit(t.Context(), "b")).To(BeEmpty(), "not the leader")
	g.Expect(c.Forfeit(t.Context(), "a")).To(Equal("b"))
	g.Expect(c.Leader()).To(Equal("b"))
	c.Down("a")
	_, err = c.Forfeit(t.Context(), "b")
	g.Expect(err).To(MatchError(etcd.ErrTimeout), "the first other member is down, and no other is tried")
}

func TestAnElectionThatWasOvertakenIsVoid(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(3)
	c.Down("a")
	c.Down("b")
	c.clock.Step(time.Second)
	g.Expect(c.Leader()).To(BeEmpty(), "quorum was lost during the election")
	g.Expect(c.Join(t.Context(), "a")).To(Succeed())
	c.clock.Step(time.Second)
	g.Expect(c.Leader()).To(Equal("a"))
}
