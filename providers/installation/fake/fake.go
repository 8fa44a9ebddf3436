// SPDX-License-Identifier: Apache-2.0

// Package fake is an installation of the hub for tests. It takes orders and keeps minutes, as package script says.
package fake

import (
	"context"
	"sync"

	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/installation"
	"ichor.maesh.dev/hub/providers/script"
)

// Installation is a hub's own installation, without a cluster.
type Installation struct {
	*script.Script

	mu         sync.Mutex
	deployment *installation.Deployment
	jobs       map[string]*installation.Job

	// Started is called when a Job begins, with what it is to do. It may call the Set functions. nil leaves the Job running.
	Started func(installation.Order)
}

// New returns an installation whose Deployment runs an image.
func New(image string) *Installation {
	return &Installation{
		Script: script.New(), deployment: &installation.Deployment{Image: image, RolledOut: true}, jobs: map[string]*installation.Job{},
	}
}

// Look implements installation.Provider.
func (i *Installation) Look(ctx context.Context, job string) (installation.Look, error) {
	if err := i.Script.Look(ctx, "Look", "hub"); err != nil {
		return installation.Look{}, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	seen := installation.Look{}
	if i.deployment != nil {
		deployment := *i.deployment
		seen.Deployment = &deployment
	}
	if found := i.jobs[job]; found != nil {
		copied := *found
		seen.Job = &copied
	}
	return seen, nil
}

// Install implements installation.Provider.
func (i *Installation) Install(ctx context.Context, order installation.Order, g guard.Func) (image string, err error) {
	err = i.Run(ctx, "Install", "hub", func() error {
		if err := guard.Check(guard.With(ctx, g), "creating Job "+order.Job); err != nil {
			return err
		}
		image = i.begin(order)
		return nil
	})
	return image, err
}

func (i *Installation) begin(order installation.Order) string {
	i.mu.Lock()
	image, _ := installation.ImageOf(i.deployment.Image, order.To)
	found := i.jobs[order.Job]
	begins := found == nil || found.State == installation.JobFailed
	if begins {
		i.jobs[order.Job] = &installation.Job{State: installation.JobRunning}
	}
	i.mu.Unlock()
	if begins && i.Started != nil {
		i.Started(order)
	}
	return image
}

// SetJob says how far a Job is.
func (i *Installation) SetJob(name string, job installation.Job) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.jobs[name] = &job
}

// SetDeployment says what the hub runs in.
func (i *Installation) SetDeployment(deployment *installation.Deployment) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.deployment = deployment
}

// Jobs is how many Jobs there are.
func (i *Installation) Jobs() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.jobs)
}
