// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// listen greets whoever connects and hangs up.
func listen(t *testing.T, address string) (port string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("this machine has no %s: %s", address, err)
	}
	t.Cleanup(func() { listener.Close() }) //nolint:errcheck // Of the test.
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			io.WriteString(conn, "hello") //nolint:errcheck // The client tells.
			conn.Close()                  //nolint:errcheck // As above.
		}
	}()
	_, port, _ = net.SplitHostPort(listener.Addr().String())
	return port
}

func greeting(ctx context.Context, d *Dialer, address string) (string, error) {
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // Only read from.
	text, err := io.ReadAll(conn)
	return string(text), err
}

// Case A15: while the name service is away, a name means what it meant last.
func TestCaseA15RemembersNames(t *testing.T) {
	g := NewWithT(t)
	port := listen(t, "127.0.0.1:0")
	d := New(time.Second, nil)
	away := false
	d.lookup = func(_ context.Context, host string) ([]string, error) {
		if away || host != "api.example.org" {
			return nil, &net.DNSError{Err: "server misbehaving", Name: host, IsTemporary: true}
		}
		return []string{"127.0.0.1"}, nil
	}
	g.Expect(greeting(t.Context(), d, "api.example.org:"+port)).To(Equal("hello"))
	away = true
	g.Expect(greeting(t.Context(), d, "api.example.org:"+port)).To(Equal("hello"))
	_, err := greeting(t.Context(), d, "other.example.org:"+port)
	g.Expect(err).To(MatchError(ContainSubstring("other.example.org")), "what was never known is not known")
	away = false
	d.lookup = func(context.Context, string) ([]string, error) { return nil, nil }
	g.Expect(greeting(t.Context(), d, "api.example.org:"+port)).To(Equal("hello"), "an empty answer is none")
	_, err = greeting(t.Context(), d, "other.example.org:"+port)
	g.Expect(err).To(MatchError(ContainSubstring("no address")))
}

// A name that moved is followed.
func TestFollowsNames(t *testing.T) {
	g := NewWithT(t)
	port := listen(t, "127.0.0.1:0")
	d := New(time.Second, nil)
	addresses := []string{"127.0.0.2"}
	d.lookup = func(context.Context, string) ([]string, error) { return addresses, nil }
	_, err := greeting(t.Context(), d, "api.example.org:"+port)
	g.Expect(err).To(HaveOccurred())
	addresses = []string{"127.0.0.2", "127.0.0.1"}
	g.Expect(greeting(t.Context(), d, "api.example.org:"+port)).To(Equal("hello"), "every address of a name is tried")
}

func TestDualStack(t *testing.T) {
	g := NewWithT(t)
	port := listen(t, "[::1]:0")
	d := New(time.Second, nil)
	g.Expect(greeting(t.Context(), d, "[::1]:"+port)).To(Equal("hello"))
	d.lookup = func(context.Context, string) ([]string, error) { return []string{"127.0.0.9", "::1"}, nil }
	g.Expect(greeting(t.Context(), d, "api.example.org:"+port)).To(Equal("hello"))
	_, err := greeting(t.Context(), d, "::1:"+port)
	g.Expect(err).To(HaveOccurred(), "an address of IPv6 needs its brackets")
}

// socksProxy speaks enough of SOCKS5 to connect to an address for user and password.
func socksProxy(t *testing.T) (address string, asked chan string) {
	t.Helper()
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { listener.Close() }) //nolint:errcheck // Of the test.
	asked = make(chan string, 8)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serveSocks(conn, asked)
		}
	}()
	return listener.Addr().String(), asked
}

func serveSocks(conn net.Conn, asked chan<- string) {
	defer conn.Close() //nolint:errcheck // The client tells.
	r := bufio.NewReader(conn)
	bytes := func(n int) []byte {
		b := make([]byte, n)
		io.ReadFull(r, b) //nolint:errcheck // As above.
		return b
	}
	bytes(int(bytes(2)[1]))  // Version, and the methods that the client knows.
	conn.Write([]byte{5, 2}) //nolint:errcheck // User and password.
	user := bytes(int(bytes(2)[1]))
	password := bytes(int(bytes(1)[0]))
	conn.Write([]byte{1, 0}) //nolint:errcheck // They are right.
	host := ""
	switch bytes(4)[3] {
	case 1:
		host = net.IP(bytes(4)).String()
	case 3:
		host = string(bytes(int(bytes(1)[0])))
	case 4:
		host = net.IP(bytes(16)).String()
	}
	port := binary.BigEndian.Uint16(bytes(2))
	asked <- string(user) + ":" + string(password) + "@" + host
	there, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", itoa(port))) //nolint:noctx // The test ends it.
	if err != nil {
		conn.Write([]byte{5, 5, 0, 1, 0, 0, 0, 0, 0, 0}) //nolint:errcheck // Refused.
		return
	}
	defer there.Close()                              //nolint:errcheck // As above.
	conn.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0}) //nolint:errcheck // Connected.
	io.Copy(conn, there)                             //nolint:errcheck // As above.
}

func itoa(port uint16) string { return (&net.TCPAddr{Port: int(port)}).String()[1:] }

// Case A14: a SOCKS5 proxy is told the name, and who asks.
func TestCaseA14Socks(t *testing.T) {
	g := NewWithT(t)
	port := listen(t, "127.0.0.1:0")
	address, asked := socksProxy(t)
	d := New(time.Second, &url.URL{Scheme: "socks5", Host: address, User: url.UserPassword("hub", "secret")})
	g.Expect(greeting(t.Context(), d, "api.inside:"+port)).To(Equal("hello"))
	g.Expect(<-asked).To(Equal("hub:secret@api.inside"))
	g.Expect(greeting(t.Context(), d, "[fd00::1]:"+port)).To(Equal("hello"))
	g.Expect(<-asked).To(Equal("hub:secret@fd00::1"))
}

func TestProxyErrors(t *testing.T) {
	for name, row := range map[string]struct {
		proxy *url.URL
		words string
	}{
		"a scheme that nobody speaks": {&url.URL{Scheme: "ftp", Host: "p:21"}, "the proxy ftp://p:21 does not connect"},
		"a proxy that is away":        {&url.URL{Scheme: "http", Host: "127.0.0.1:1"}, "the proxy http://127.0.0.1:1 does not connect"},
		"its password stays secret":   {&url.URL{Scheme: "https", Host: "127.0.0.1:1", User: url.UserPassword("u", "p")}, "the proxy https://u:xxxxx@127.0.0.1:1 does not connect"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := New(time.Second, row.proxy).DialContext(t.Context(), "tcp", "10.0.0.1:6443")
			var failure *ProxyError
			g.Expect(errors.As(err, &failure)).To(BeTrue(), "%v", err)
			g.Expect(failure.Words()).To(Equal(row.words))
		})
	}
}

// A proxy that takes the question and never answers is given up when the context ends.
func TestProxyHeedsItsContext(t *testing.T) {
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer listener.Close() //nolint:errcheck // Of the test.
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close() //nolint:errcheck // The client tells.
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			cancel() // The question has arrived.
		}
		<-t.Context().Done()
	}()
	_, err = New(time.Second, &url.URL{Scheme: "http", Host: listener.Addr().String()}).DialContext(ctx, "tcp", "10.0.0.1:6443")
	g.Expect(err).To(HaveOccurred())
	g.Expect(ctx.Err()).To(HaveOccurred())
}

func TestTLSTrouble(t *testing.T) {
	for message, row := range map[string]struct {
		words      string
		credential bool
	}{
		"remote error: tls: bad certificate":                                                 {"the server does not accept the client certificate", true},
		"remote error: tls: expired certificate":                                             {"the server does not accept the client certificate: it has expired", true},
		"remote error: tls: certificate required":                                            {"the server wants a client certificate", true},
		"x509: certificate signed by unknown authority":                                      {"the certificate of the server is not signed by the CA of the file", true},
		"x509: certificate has expired or is not yet valid: current time 2026 is after 2025": {"the certificate of the server has expired or is not yet valid", false},
		"x509: certificate is valid for a, not b":                                            {"the certificate of the server is for another address", false},
		"some certificate":   {"the TLS certificate is not accepted, by the hub or by the server", false},
		"connection refused": {"", false},
	} {
		t.Run(strings.ReplaceAll(message, " ", "_"), func(t *testing.T) {
			words, credential := TLSTrouble("rpc error: " + message + ", and more")
			NewWithT(t).Expect(words).To(Equal(row.words))
			NewWithT(t).Expect(credential).To(Equal(row.credential))
		})
	}
}

// said is a connection to a proxy that says one thing.
type said struct {
	net.Conn

	answer io.Reader
}

func (s said) Read(p []byte) (int, error)  { return s.answer.Read(p) }
func (s said) Write(p []byte) (int, error) { return len(p), nil }

// Whatever a proxy answers, it connects with 200 alone.
func FuzzHandshake(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.0 200 Connection established\r\nVia: x\r\n\r\n", "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "SSH-2.0-x\r\n", "HTTP/1.1 200", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, answer string) {
		conn, err := handshake(said{answer: strings.NewReader(answer)}, &url.URL{Scheme: "http", Host: "p"}, "10.0.0.1:6443")
		if (err == nil) != (conn != nil) {
			t.Fatalf("%q: %v and %v", answer, conn, err)
		}
		if fields := strings.Fields(answer); err == nil && (len(fields) < 2 || fields[1] != "200") {
			t.Fatalf("%q connects", answer)
		}
	})
}
