// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/harness"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/journal"
)

// speed is how much faster than in the demo the fleet lives: a reboot takes 0.4 seconds.
const speed = 15

// stepDeadline is short, so that what gets stuck fails while the run lasts, and long for two busy processors.
const stepDeadline = 15 * time.Second

// steps are all that may have a deadline.
var steps = []v1alpha1.OperationStep{
	v1alpha1.PullingStep, v1alpha1.InstallingStep, v1alpha1.ForfeitingStep, v1alpha1.DrainingStep, v1alpha1.RebootingStep,
	v1alpha1.VerifyingStep, v1alpha1.UncordoningStep,
}

// Options say how long, how much, and which run.
type Options struct {
	// Seed decides everything.
	Seed uint64

	// Clusters is how many there are.
	Clusters int

	// Duration is how long things go wrong. Then they may come to rest, for Patience at most.
	Duration, Patience time.Duration

	// Trace is told all that was done, in the order in which it was done.
	Trace io.Writer

	// Log hears the hub; its zero value discards.
	Log logr.Logger
}

// run is a run under way.
type run struct {
	options Options
	harness *harness.Harness
	log     *log
	watcher *watcher
	players []*player

	kills, stops int
	interrupted  []time.Time // When the hub was ended.
}

// Run makes a run, and says what it was and what it found that must not be. An error means that there was no run.
func Run(ctx context.Context, o Options) (*Report, error) {
	specs := Fleet(o.Seed, o.Clusters)
	h, err := harness.Start(ctx, harness.Options{Clusters: specs, Speed: speed, Deadlines: deadlines(), Log: o.Log})
	if err != nil {
		return nil, err
	}
	r := &run{options: o, harness: h, log: &log{out: o.Trace, began: time.Now()}}
	report, err := r.all(ctx, specs)
	return report, errors.Join(err, h.Stop())
}

func deadlines() map[v1alpha1.OperationStep]time.Duration {
	all := map[v1alpha1.OperationStep]time.Duration{}
	for _, step := range steps {
		all[step] = stepDeadline
	}
	return all
}

func (r *run) all(ctx context.Context, specs []sim.ClusterSpec) (*Report, error) {
	if err := r.begin(ctx, specs); err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var err error
	if r.watcher, err = newWatcher(watching, r.harness.Client, r.log); err != nil {
		return nil, err
	}
	go r.watcher.follow(watching)
	if err := r.play(ctx); err != nil {
		return nil, err
	}
	if err := r.rest(ctx); err != nil {
		r.log.problem("%s", err)
	}
	if err := r.check(ctx); err != nil {
		return nil, err
	}
	return r.report(), nil
}

// begin imports all clusters.
func (r *run) begin(ctx context.Context, specs []sim.ClusterSpec) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, spec := range specs {
		r.players = append(r.players, &player{
			harness: r.harness, log: r.log, cluster: spec.Name, faults: map[int]*force{}, moves: Script(r.options.Seed, spec, r.options.Duration),
		})
		group.Go(func() error { return r.harness.Import(ctx, spec.Name) })
	}
	return group.Wait()
}

// play makes all moves, and ends the hub meanwhile.
func (r *run) play(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	r.log.began = time.Now()
	for _, p := range r.players {
		group.Go(func() error { return p.play(ctx, r.log.began) })
	}
	group.Go(func() error { return r.endHubs(ctx) })
	return group.Wait()
}

// endHubs ends one hub after the other. When it returns without an error, a hub runs.
func (r *run) endHubs(ctx context.Context) error {
	for _, end := range Ends(r.options.Seed, r.options.Duration) {
		if !until(ctx, r.log.began.Add(end.At)) {
			return ctx.Err()
		}
		at := r.moment(ctx, end)
		r.interrupted = append(r.interrupted, time.Now())
		if err := r.endHub(end); err != nil {
			r.log.problem("%s", err)
			r.log.stacks()
		}
		r.log.note("hub %s: at %s", end, at)
		if !until(ctx, time.Now().Add(end.Down)) {
			return ctx.Err()
		}
		if err := r.harness.StartHub(); err != nil {
			return err
		}
	}
	return nil
}

// momentWait bounds the wait for the moment of an end.
const momentWait = 2 * time.Second

// moment waits for what an end waits for, and says what came.
func (r *run) moment(ctx context.Context, end End) string {
	if end.On == "" {
		return "once"
	}
	ctx, cancel := context.WithTimeout(ctx, momentWait)
	defer cancel()
	entry, err := r.harness.Journal().Wait(ctx, journal.Filter{Method: end.On, After: r.harness.Journal().Last()})
	if err != nil {
		return "last"
	}
	return fmt.Sprintf("#%d %s %s %s", entry.Sequence, entry.Cluster, entry.Node, entry.Method)
}

func (r *run) endHub(end End) error {
	if end.Kill {
		r.kills++
		return r.harness.KillHub()
	}
	r.stops++
	return r.harness.StopHub()
}
