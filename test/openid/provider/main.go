// SPDX-License-Identifier: Apache-2.0

// Command provider is an OpenID provider for the tests of the page: it signs in whoever comes as ada@example.com. It calls itself localhost, which
// is another site for a browser than the address that the hub is at.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"ichor.maesh.dev/hub/hub/standalone/pki"
	"ichor.maesh.dev/hub/test/openid"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "provider:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	callback := flag.String("callback", "", "redirect URL of the hub")
	dir := flag.String("dir", "", "directory for the certificate, https.crt")
	flag.Parse()
	return serve(ctx, *callback, *dir)
}

func serve(ctx context.Context, callback, dir string) error {
	const host = "localhost"
	files := pki.SelfSignedIn(dir)
	if err := files.Ensure([]string{host}, time.Now()); err != nil {
		return fmt.Errorf("making a certificate: %w", err)
	}
	certificate, err := tls.LoadX509KeyPair(files.Pair, files.Pair)
	if err != nil {
		return fmt.Errorf("reading the certificate: %w", err)
	}
	provider, err := openid.New(callback, "https", host)
	if err != nil {
		return err
	}
	provider.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	provider.StartTLS()
	defer provider.Close()
	fmt.Fprintln(os.Stdout, "Serving:", provider.Issuer)
	<-ctx.Done()
	return nil
}
