// SPDX-License-Identifier: Apache-2.0

package deep

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"ichor.maesh.dev/hub/test/sim/secrets"
)

// errNoServer is what requests get while no API server serves.
var errNoServer = errors.New("no API server serves")

// transport sends requests to any API server that serves, past the ports which faults close: what happens inside a cluster goes on
// while nobody from outside reaches it.
type transport struct {
	cluster *Cluster
	who     identity
	// owner is the machine in whose name the requests go; without one it is that of the API server.
	owner string

	mu   sync.Mutex
	to   map[string]*http.Transport // By the names of the servers' machines.
	from map[string]*secrets.Files  // What those were made from.
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	n, s := t.cluster.anyServer(t.owner)
	if n == nil {
		return nil, errNoServer
	}
	way, err := t.way(n, s)
	if err != nil {
		return nil, err
	}
	request = request.Clone(request.Context())
	request.URL.Scheme, request.URL.Host = "https", n.serverAddress()
	return way.RoundTrip(request)
}

// way is the connection to one server, made anew when one of the two got other certificates.
func (t *transport) way(n *node, s *server) (*http.Transport, error) {
	files := s.files
	if t.owner != "" {
		var err error
		if files, err = t.cluster.Files(t.owner); err != nil {
			return nil, err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if way, ok := t.to[n.name]; ok && t.from[n.name] == files {
		return way, nil
	}
	config, err := t.who.in(files)
	if err != nil {
		return nil, fmt.Errorf("credentials for the API server of %s: %w", n.name, err)
	}
	if old := t.to[n.name]; old != nil {
		old.CloseIdleConnections()
	}
	way := newWay(config)
	t.to[n.name], t.from[n.name] = way, files
	return way, nil
}

func newWay(config *tls.Config) *http.Transport {
	return &http.Transport{
		TLSClientConfig: config, ForceAttemptHTTP2: true, TLSHandshakeTimeout: answerWithin, IdleConnTimeout: time.Minute,
	}
}

func (c *Cluster) newTransport(who identity, owner string) *transport {
	return &transport{cluster: c, who: who, owner: owner, to: map[string]*http.Transport{}, from: map[string]*secrets.Files{}}
}

// anyServer is an API server that serves: that of a machine itself if it has one, else the first.
func (c *Cluster) anyServer(preferred string) (*node, *server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var best *node
	for _, n := range c.nodes {
		if n.server == nil || !n.server.ready {
			continue
		}
		if best == nil || n.name == preferred {
			best = n
		}
	}
	if best == nil {
		return nil, nil
	}
	return best, best.server
}

// Serving says whether the Kubernetes API works for those inside.
func (c *Cluster) Serving() bool {
	n, _ := c.anyServer("")
	return n != nil && c.Healthy()
}
