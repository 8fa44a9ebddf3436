// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/providers/target"
)

// connectProxy is a real HTTP proxy for CONNECT: it makes the connections that it is asked for, and refuses those to other hosts.
type connectProxy struct {
	*httptest.Server

	mu    sync.Mutex
	asked []string
	login string
}

func newConnectProxy(t *testing.T, allowed string) *connectProxy {
	t.Helper()
	p := &connectProxy{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.asked = append(p.asked, r.Method+" "+r.Host)
		p.login = r.Header.Get("Proxy-Authorization")
		p.mu.Unlock()
		if r.Host != allowed {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		there, err := net.Dial("tcp", r.Host) //nolint:noctx // The test ends it.
		if err != nil {
			http.Error(w, "no", http.StatusBadGateway)
			return
		}
		here, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n") //nolint:errcheck // The client tells.
		go func() {
			defer here.Close()   //nolint:errcheck // As above.
			io.Copy(here, there) //nolint:errcheck // Until one side has enough.
		}()
		defer there.Close()  //nolint:errcheck // As above.
		io.Copy(there, here) //nolint:errcheck // As above.
	}))
	t.Cleanup(p.Close)
	return p
}

// Case A14: a proxy-url is honoured for the server and for every other control plane, and the server behind it must still prove who it is.
func TestCaseA14Proxy(t *testing.T) {
	g := NewWithT(t)
	s := newAPIServer(t)
	proxy := newConnectProxy(t, "127.0.0.1:"+s.port())
	config := s.config("elsewhere.invalid")
	config.Config.ServerName = "example.com"
	address, err := url.Parse(proxy.URL)
	g.Expect(err).NotTo(HaveOccurred())
	address.User = url.UserPassword("hub", "secret")
	config.Config.Proxy = http.ProxyURL(address)

	g.Expect(through(t, config, target.Target{ControlPlanes: []string{"127.0.0.1"}}).Version(t.Context())).To(Equal("v1.35.2"))
	g.Expect(proxy.asked).To(Equal([]string{"CONNECT elsewhere.invalid:" + s.port(), "CONNECT 127.0.0.1:" + s.port()}), "the proxy resolves names")
	g.Expect(proxy.login).To(Equal("Basic aHViOnNlY3JldA=="))
	g.Expect(s.names).To(Equal([]string{"example.com"}))

	_, err = through(t, config, target.Target{}).Version(t.Context())
	g.Expect(Trouble(err)).To(Equal("the proxy http://hub:xxxxx@" + address.Host + " answers: 403 Forbidden"))
	proxy.Close()
	_, err = through(t, config, target.Target{}).Version(t.Context())
	g.Expect(Trouble(err)).To(Equal("the proxy http://hub:xxxxx@" + address.Host + " does not connect"))
}
