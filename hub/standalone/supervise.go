// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
)

const (
	// steadyAfter is how long a child must run for its end to count as a first failure again.
	steadyAfter = time.Minute
	// renewInterval is how often certificates are looked at.
	renewInterval = 12 * time.Hour
	// readyPoll and readyTry pace the wait for the API; a try hangs while nobody accepts connections.
	readyPoll, readyTry = 25 * time.Millisecond, 2 * time.Second
)

// restarts is how long to wait before each restart in a row. When it is used up something is wrong that another
// start does not mend, and the one who started the hub must know.
var restarts = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 3, Jitter: 0.1, Steps: 6}

func (i *Instance) startChild() (*process, error) {
	return startProcess(i.binary, i.dir, i.listener, i.childLog, i.audit.args()...)
}

// supervise keeps a child running until a stop is asked for, or until it ends too often.
func (i *Instance) supervise(child *process) {
	defer close(i.done)
	renew := time.NewTicker(renewInterval)
	defer renew.Stop()
	started, backoff := time.Now(), i.backoff
	for {
		select {
		case <-i.stopping:
			i.err = child.stop()
			return
		case <-renew.C:
			i.renewCertificates()
			continue
		case <-child.ended:
		}
		if time.Since(started) > steadyAfter {
			backoff = i.backoff
		}
		if child = i.restart(child.err, &backoff); child == nil {
			return
		}
		started = time.Now()
	}
}

// restart starts another child after a pause. It returns nil when there shall be none.
func (i *Instance) restart(cause error, backoff *wait.Backoff) *process {
	for backoff.Steps > 0 {
		i.log.Error(cause, "API server ended, restarting it", "apiServerLog", i.dir.childLog())
		select {
		case <-i.stopping:
			return nil
		case <-time.After(backoff.Step()):
		}
		child, err := i.startChild()
		if err == nil {
			return child
		}
		cause = err
	}
	i.err = fmt.Errorf("API server ends again and again, see %s: %w", i.dir.childLog(), describeEnd(cause))
	i.log.Error(i.err, "Giving up on the API server")
	return nil
}

// describeEnd gives an end without an error words, too.
func describeEnd(err error) error {
	if err == nil {
		return errors.New("it ended without an error")
	}
	return err
}

// renewCertificates replaces certificates before they end. The API server and clients read them again by themselves.
func (i *Instance) renewCertificates() {
	renewed, err := i.files.Renew(time.Now())
	if err == nil && renewed {
		err = i.writeKubeconfigs()
	}
	if err = errors.Join(err, i.ensureCertificate()); err != nil {
		i.log.Error(err, "Failed to renew certificates, trying again later", "interval", renewInterval)
	}
}

// waitReady returns when the API serves, or when the child ends before that.
func (i *Instance) waitReady(ctx context.Context, child *process) error {
	config := i.AdminConfig()
	config.Timeout = readyTry
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("creating client to wait for the API server: %w", err)
	}
	err = wait.PollUntilContextCancel(ctx, readyPoll, true, func(ctx context.Context) (bool, error) {
		select {
		case <-child.ended:
			return false, fmt.Errorf("API server ended before it was ready, see %s: %w", i.dir.childLog(), describeEnd(child.err))
		default:
		}
		// Any failure here means "not yet": only the end of the child, or of the context, is final.
		return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("waiting for the API server to be ready, see %s: %w", i.dir.childLog(), err)
	}
	return err
}
