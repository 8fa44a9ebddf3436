// SPDX-License-Identifier: Apache-2.0

// Package etcd models the membership of an etcd cluster: members, leader, term and quorum, but no data.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"

	"k8s.io/utils/clock"

	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/timing"
)

// Errors in etcd's own words.
var (
	// ErrNoLeader is returned while the cluster has no leader.
	ErrNoLeader = errors.New("etcdserver: no leader")
	// ErrTimeout is returned when a request found no quorum in time.
	ErrTimeout = errors.New("etcdserver: request timed out")
	// ErrNotRunning is returned by a member that is down.
	ErrNotRunning = errors.New(`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:2379: connect: connection refused"`)
	// ErrSingleMember is returned when there is nobody to hand the leadership to.
	ErrSingleMember = errors.New("cannot forfeit leadership, only one member")
)

// Member is one member as the others see it.
type Member struct {
	// ID is stable for the life of the member.
	ID uint64
	// Name is the node's name.
	Name string
	// Address is the node's IP.
	Address string
	// Learner members do not vote.
	Learner bool
}

// Status is what a member says about itself and the cluster.
type Status struct {
	MemberID, Leader uint64
	Term, Index      uint64
	Learner          bool
	// Version is etcd's own, and StorageVersion that of what it has written.
	Version, StorageVersion string
	// Size is that of the database on disk, InUse what of it holds data.
	Size, InUse int64
}

type member struct {
	Member
	up       bool
	database database
}

// Cluster is the model. Its methods may be called from any goroutine.
type Cluster struct {
	name    string
	clock   clock.WithDelayedExecution
	timings timing.Timings
	changed func(leader string) // Called without the lock after each change.
	faults  *fault.Registry     // Nil orders nothing.
	data    Data                // Nil holds nothing.
	tell    func(name, event, message string)

	mu       sync.Mutex
	machines map[string]*machine
	members  []*member
	leader   uint64 // Zero while there is none.
	term     uint64
	index    uint64
	election int           // Number of the pending election: an older timer is void.
	wake     chan struct{} // Closed and replaced at each change.
}

// Where a cluster begins.
const (
	beginningTerm  = 2
	beginningIndex = 1000
)

// What the modelled members say that they are.
const (
	version        = "3.6.4"
	storageVersion = "3.6.0"
)

// New makes an empty cluster. changed is told the leader's name after each change of membership or leadership.
func New(name string, clk clock.WithDelayedExecution, timings timing.Timings, changed func(leader string)) *Cluster {
	return &Cluster{
		name: name, clock: clk, timings: timings, changed: changed,
		term: beginningTerm, index: beginningIndex, wake: make(chan struct{}), machines: map[string]*machine{},
		tell: func(string, string, string) {},
	}
}

// What Tell tells of a member.
const (
	LearnerEvent = "etcd-learner"
	VoterEvent   = "etcd-voter"
	RemovedEvent = "etcd-removed"
)

// Tell makes the cluster tell of every change of its membership, in order: of what has become of the member of which machine, and its ID.
// Whoever is told calls nothing here.
func (c *Cluster) Tell(tell func(name, event, message string)) { c.tell = tell }

// news tells of a member. The caller holds the lock.
func (c *Cluster) news(m *member, event string) { c.tell(m.Name, event, fmt.Sprintf("%016x", m.ID)) }

// Obey makes the cluster ask for its faults. Refresh tells it that they changed.
func (c *Cluster) Obey(faults *fault.Registry) { c.faults = faults }

// Refresh carries out what faults change at once: a leader that may not lead steps down.
func (c *Cluster) Refresh() {
	c.mu.Lock()
	if m := c.find(c.leader); m != nil && c.learner(m) {
		c.leader = 0
	}
	if c.leader == 0 && c.quorum() {
		c.elect()
	}
	leader := c.leaderName()
	c.signal()
	c.mu.Unlock()
	c.changed(leader)
}

// stands asks for a fault of one member; no member asks for one of the whole cluster.
func (c *Cluster) stands(name string, m *member) bool {
	if c.faults == nil {
		return false
	}
	at := fault.Site{Cluster: c.name}
	if m != nil {
		at.Node = m.Name
	}
	_, there := c.faults.Stands(name, at)
	return there
}

func (c *Cluster) learner(m *member) bool { return m.Learner || c.stands(fault.EtcdLearner, m) }

// Alarm is an alarm that a member has raised.
type Alarm struct {
	MemberID uint64
	Name     string
}

// Alarms lists the alarms. Every member knows all of them.
func (c *Cluster) Alarms(_ context.Context, name string) ([]Alarm, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.ask(name); err != nil {
		return nil, err
	}
	if !c.healthy() {
		return nil, ErrNoLeader
	}
	var alarms []Alarm
	for _, m := range c.members {
		if c.faults == nil {
			break
		}
		if f, raised := c.faults.Stands(fault.EtcdAlarm, fault.Site{Cluster: c.name, Node: m.Name}); m.raises(f, raised) {
			alarms = append(alarms, Alarm{MemberID: m.ID, Name: f.Params[fault.ParamAlarm]})
		}
	}
	return alarms, nil
}

// Add makes a member that is up. The first one becomes the leader.
func (c *Cluster) Add(name, address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &machine{address: address}
	c.machines[name] = m
	c.admit(name, m, false)
	if c.leader == 0 {
		c.leader = c.members[0].ID
	}
}

// Know tells of a machine that may join one day, and has nothing of etcd.
func (c *Cluster) Know(name, address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.machines[name] = &machine{address: address}
}

// MemberID is the ID of a machine's member, zero while it has none.
func (c *Cluster) MemberID(name string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.named(name); m != nil {
		return m.ID
	}
	return 0
}

func memberID(cluster, name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(cluster + "/" + name))
	return h.Sum64()
}

// Down takes a member away. If it was the leader, or quorum is lost, there is no leader until an election succeeds.
func (c *Cluster) Down(name string) {
	c.mu.Lock()
	if m := c.named(name); m != nil {
		m.up = false
	}
	if m := c.machines[name]; m != nil {
		m.preparing, m.order = false, nil
	}
	c.settle()
	leader := c.leaderName()
	c.mu.Unlock()
	c.changed(leader)
}

// elect starts an election, which makes earlier ones void. The caller holds the lock.
func (c *Cluster) elect() {
	c.election++
	number := c.election
	c.clock.AfterFunc(c.timings.Election, func() { c.elected(number) })
}

func (c *Cluster) elected(number int) {
	c.mu.Lock()
	if number != c.election || c.leader != 0 || !c.quorum() {
		c.mu.Unlock()
		return
	}
	c.lead(c.members[slices.IndexFunc(c.members, func(m *member) bool { return m.up && !c.learner(m) })])
	leader := c.leaderName()
	c.mu.Unlock()
	c.changed(leader)
}

func (c *Cluster) lead(m *member) {
	c.leader = m.ID
	c.term++
	c.signal()
}

func (c *Cluster) signal() {
	c.index++
	close(c.wake)
	c.wake = make(chan struct{})
}

// Healthy says whether the cluster serves: it has a quorum and a leader.
func (c *Cluster) Healthy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.healthy()
}

func (c *Cluster) healthy() bool {
	return c.leader != 0 && c.quorum() && !c.pauses() && !c.stands(fault.EtcdNoLeader, nil)
}

// WaitHealthy waits until the cluster serves.
func (c *Cluster) WaitHealthy(ctx context.Context) error {
	for {
		c.mu.Lock()
		healthy, wake := c.healthy(), c.wake
		c.mu.Unlock()
		if healthy {
			return nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Serve waits as long as a request would: it returns ErrTimeout when the cluster does not serve within etcd's own time-out.
func (c *Cluster) Serve(ctx context.Context) error {
	if c.Healthy() {
		return nil
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := c.clock.AfterFunc(c.timings.EtcdTimeout, cancel)
	defer timer.Stop()
	if err := c.WaitHealthy(waiting); err != nil {
		return errors.Join(ErrTimeout, ctx.Err())
	}
	return nil
}

// Members lists the members as one of them answers it, which needs a leader.
func (c *Cluster) Members(_ context.Context, name string) ([]Member, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked, err := c.ask(name)
	if err != nil {
		return nil, err
	}
	if !c.healthy() || c.stands(fault.EtcdNoLeader, asked) {
		return nil, ErrNoLeader
	}
	members := make([]Member, 0, len(c.members))
	for _, m := range c.members {
		told := m.Member
		told.Learner = c.learner(m)
		members = append(members, told)
	}
	if c.stands(fault.EtcdMembersDiffer, asked) { // It has not heard of one of the others.
		i := slices.IndexFunc(members, func(m Member) bool { return m.ID != asked.ID })
		members = slices.Delete(members, max(i, 0), i+1)
	}
	return members, nil
}

// Status is the local view of a member; it is answered without a quorum too.
func (c *Cluster) Status(_ context.Context, name string) (Status, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.ask(name)
	if err != nil {
		return Status{}, err
	}
	status := Status{Version: version, StorageVersion: storageVersion, MemberID: m.ID, Leader: c.leader, Term: c.term, Index: c.index, Learner: c.learner(m), Size: c.size(m), InUse: inUse}
	if c.stands(fault.EtcdNoLeader, nil) || c.stands(fault.EtcdNoLeader, m) {
		status.Leader = 0
	}
	return status, nil
}

// Forfeit moves the leadership from a member to the first other one. It returns that one's name, or nothing when
// the member was not the leader.
func (c *Cluster) Forfeit(_ context.Context, name string) (string, error) {
	c.mu.Lock()
	to, err := c.forfeit(name)
	c.mu.Unlock()
	if to == "" || err != nil {
		return "", err
	}
	c.changed(to)
	return to, nil
}

func (c *Cluster) forfeit(name string) (string, error) {
	from, err := c.ask(name)
	if err != nil {
		return "", err
	}
	if len(c.members) < 2 {
		return "", ErrSingleMember
	}
	if c.leader != from.ID {
		return "", nil
	}
	next := c.members[slices.IndexFunc(c.members, func(m *member) bool { return m != from })]
	if !next.up || c.learner(next) {
		return "", fmt.Errorf("move leadership to %s: %w", next.Name, ErrTimeout)
	}
	c.lead(next)
	return next.Name, nil
}

// Leader returns the leader's name, or nothing while there is none.
func (c *Cluster) Leader() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leaderName()
}

func (c *Cluster) leaderName() string {
	if m := c.find(c.leader); m != nil {
		return m.Name
	}
	return ""
}

func (c *Cluster) find(id uint64) *member {
	i := slices.IndexFunc(c.members, func(m *member) bool { return m.ID == id })
	if i < 0 {
		return nil
	}
	return c.members[i]
}

// named is the member of a machine, or nil.
func (c *Cluster) named(name string) *member {
	i := slices.IndexFunc(c.members, func(m *member) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return c.members[i]
}

// ask finds the member of a machine, if it answers.
func (c *Cluster) ask(name string) (*member, error) {
	switch m := c.named(name); {
	case m == nil || !m.up:
		return nil, ErrNotRunning
	case m.database.busy:
		return nil, ErrTimeout
	default:
		return m, nil
	}
}

// quorum counts voters only.
func (c *Cluster) quorum() bool {
	voters, up := 0, 0
	for _, m := range c.members {
		if c.learner(m) {
			continue
		}
		voters++
		if m.up {
			up++
		}
	}
	return up > voters/2
}
