// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/proxy"
)

// defaultPorts are where proxies listen if their URL does not say.
var defaultPorts = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}

// ProxyError is why a proxy makes no connection.
type ProxyError struct {
	// Proxy is its URL, without the password.
	Proxy string

	// Answer is what it answered; nothing if it did not.
	Answer string

	// Cause is the error.
	Cause error
}

// Error names the proxy.
func (e *ProxyError) Error() string { return fmt.Sprintf("proxy %s: %s", e.Proxy, e.Cause) }

// Unwrap returns the cause.
func (e *ProxyError) Unwrap() error { return e.Cause }

// Words say the same for the same fault.
func (e *ProxyError) Words() string {
	if e.Answer != "" {
		return fmt.Sprintf("the proxy %s answers: %s", e.Proxy, e.Answer)
	}
	return fmt.Sprintf("the proxy %s does not connect", e.Proxy)
}

// answerError is what a proxy answered instead of connecting.
type answerError struct{ address, status string }

func (e *answerError) Error() string { return fmt.Sprintf("asking for %s: %s", e.address, e.status) }

// through connects by way of a proxy.
func (d *Dialer) through(ctx context.Context, by *url.URL, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, proxyTimeout)
	defer cancel()
	conn, err := d.openerFor(by)(ctx, by, address)
	if err != nil {
		failure := &ProxyError{Proxy: by.Redacted(), Cause: err}
		var answer *answerError
		if errors.As(err, &answer) {
			failure.Answer = answer.status
		}
		return nil, failure
	}
	return conn, nil
}

type opener func(ctx context.Context, by *url.URL, address string) (net.Conn, error)

func (d *Dialer) openerFor(by *url.URL) opener {
	switch by.Scheme {
	case "http", "https":
		return d.connect
	case "socks5", "socks5h":
		return d.socks
	}
	return func(context.Context, *url.URL, string) (net.Conn, error) {
		return nil, errors.New("its scheme must be http, https or socks5")
	}
}

// to connects to the proxy itself.
func (d *Dialer) to(ctx context.Context, by *url.URL) (net.Conn, error) {
	port := by.Port()
	if port == "" {
		port = defaultPorts[by.Scheme]
	}
	conn, err := d.direct(ctx, "tcp", net.JoinHostPort(by.Hostname(), port))
	if err != nil || by.Scheme != "https" {
		return conn, err
	}
	secured := tls.Client(conn, &tls.Config{ServerName: by.Hostname(), MinVersion: tls.VersionTLS12})
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secured, nil
}

// connect asks an HTTP proxy for a connection.
func (d *Dialer) connect(ctx context.Context, by *url.URL, address string) (net.Conn, error) {
	conn, err := d.to(ctx, by)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) }) //nolint:errcheck // A connection that cannot be stopped ends by itself.
	tunnel, err := handshake(conn, by, address)
	if !stop() && err == nil { // The deadline of a connection that has come too late is set.
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return tunnel, nil
}

func handshake(conn net.Conn, by *url.URL, address string) (net.Conn, error) {
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{}}
	if password, ok := by.User.Password(); ok || by.User.Username() != "" {
		login := base64.StdEncoding.EncodeToString([]byte(by.User.Username() + ":" + password))
		request.Header.Set("Proxy-Authorization", "Basic "+login)
	}
	if err := request.Write(conn); err != nil {
		return nil, fmt.Errorf("asking for %s: %w", address, err)
	}
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, request)
	if err != nil {
		return nil, fmt.Errorf("asking for %s: %w", address, err)
	}
	response.Body.Close() //nolint:errcheck // The answer to CONNECT has no body.
	if response.StatusCode != http.StatusOK {
		return nil, &answerError{address, response.Status}
	}
	if reader.Buffered() > 0 {
		return nil, fmt.Errorf("asking for %s: it speaks before it is spoken to", address)
	}
	return conn, nil
}

// socks asks a SOCKS5 proxy for a connection.
func (d *Dialer) socks(ctx context.Context, by *url.URL, address string) (net.Conn, error) {
	var auth *proxy.Auth
	if by.User != nil {
		password, _ := by.User.Password()
		auth = &proxy.Auth{User: by.User.Username(), Password: password}
	}
	dialer, err := proxy.SOCKS5("tcp", by.Host, auth, toProxy{d, by})
	if err != nil {
		return nil, err
	}
	return dialer.(proxy.ContextDialer).DialContext(ctx, "tcp", address)
}

// toProxy makes the connection to the proxy that SOCKS5 speaks over.
type toProxy struct {
	dialer *Dialer
	proxy  *url.URL
}

// Dial implements proxy.Dialer.
func (p toProxy) Dial(network, address string) (net.Conn, error) {
	return p.DialContext(context.Background(), network, address)
}

// DialContext implements proxy.ContextDialer.
func (p toProxy) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	return p.dialer.to(ctx, p.proxy)
}
