// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/test/sim/link"
)

// echo serves a port that sends back what it gets.
func echo(t *testing.T, p *link.Port) {
	t.Helper()
	t.Cleanup(func() { _ = p.Close() })
	go func() {
		for {
			c, err := p.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
}

// freeAddress finds an address that stays the same while the port opens and closes.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	address := l.Addr().String()
	NewWithT(t).Expect(l.Close()).To(Succeed())
	return address
}

func say(c net.Conn, s string) (string, error) {
	if _, err := c.Write([]byte(s)); err != nil {
		return "", err
	}
	b := make([]byte, len(s))
	n, err := io.ReadFull(c, b)
	return string(b[:n]), err
}

func TestPortModes(t *testing.T) {
	g := NewWithT(t)
	address := freeAddress(t)
	p := link.NewPort(address)
	echo(t, p)
	_, err := net.Dial("tcp", address)
	g.Expect(err).To(HaveOccurred(), "closed at first")

	g.Expect(p.Set(link.Open)).To(Succeed())
	c, err := net.Dial("tcp", address)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(say(c, "hello")).To(Equal("hello"))

	g.Expect(p.Set(link.Blackhole)).To(Succeed())
	g.Expect(c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))).To(Succeed())
	_, err = say(c, "anybody")
	g.Expect(errors.Is(err, os.ErrDeadlineExceeded)).To(BeTrue(), "%v", err)
	g.Expect(p.Set(link.Open)).To(Succeed())
	g.Expect(c.SetReadDeadline(time.Now().Add(10 * time.Second))).To(Succeed())
	late := make([]byte, len("anybody"))
	_, err = io.ReadFull(c, late)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(late)).To(Equal("anybody"), "nothing is lost, as with TCP")

	g.Expect(p.Set(link.Closed)).To(Succeed())
	_, err = io.ReadAll(c)
	g.Expect(err).To(HaveOccurred(), "the connection is cut")
	g.Expect(p.Set(link.Open)).To(Succeed())
	c, err = net.Dial("tcp", address)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(say(c, "again")).To(Equal("again"))
}

func TestBalancerCutsOneBackend(t *testing.T) {
	g := NewWithT(t)
	address := freeAddress(t)
	backends := make(chan string, 2)
	p := link.NewBalancer(address, func() string { return <-backends })
	echo(t, p)
	g.Expect(p.Set(link.Open)).To(Succeed())
	var conns []net.Conn
	for _, name := range []string{"one", "two"} {
		backends <- name
		c, err := net.Dial("tcp", address)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(say(c, name)).To(Equal(name))
		conns = append(conns, c)
	}
	p.CutBackend("one")
	_, err := io.ReadAll(conns[0])
	g.Expect(err).To(HaveOccurred())
	g.Expect(say(conns[1], "still here")).To(Equal("still here"))
}

func TestResetAndSlow(t *testing.T) {
	g := NewWithT(t)
	address := freeAddress(t)
	p := link.NewPort(address)
	echo(t, p)
	g.Expect(p.Set(link.Open)).To(Succeed())
	c, err := net.Dial("tcp", address)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(say(c, "hello")).To(Equal("hello"))

	const delay = 30 * time.Millisecond
	p.SetDelay(delay)
	g.Expect(p.Set(link.Slow)).To(Succeed())
	begun := time.Now()
	g.Expect(say(c, "slowly")).To(Equal("slowly"))
	g.Expect(time.Since(begun)).To(BeNumerically(">=", delay))

	g.Expect(p.Set(link.Reset)).To(Succeed())
	_, err = say(c, "hello")
	g.Expect(err).To(HaveOccurred(), "cut")
	again, err := net.Dial("tcp", address)
	if err == nil { // The connection may be reset before or after Dial returns.
		_, err = say(again, "hello")
	}
	g.Expect(err).To(HaveOccurred())
	g.Expect(p.Set(link.Open)).To(Succeed())
	again, err = net.Dial("tcp", address)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(say(again, "hello")).To(Equal("hello"))
	p.Cut()
	_, err = io.ReadAll(again)
	g.Expect(err).To(HaveOccurred())
}
