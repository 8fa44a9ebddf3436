// SPDX-License-Identifier: Apache-2.0

// Command image puts the hub's binaries into an image of several platforms, without a Docker daemon: an OCI layout, which every tool that
// pushes images reads. Beside it, and in it, is what the binaries are made of (SPDX).
//
//	image --version v0.1.0 --out bin/image --lock ui/package-lock.json linux/amd64=bin/linux-amd64/ichor-hub linux/arm64=...
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// options say what is put together.
type options struct {
	version, out, lock string
	created            time.Time
	binaries           []binary
}

// binary is the hub for one platform.
type binary struct{ platform, path string }

func run(args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	made, err := build(o)
	if err != nil {
		return err
	}
	for _, line := range made {
		fmt.Fprintln(out, line)
	}
	return nil
}

func parse(args []string) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.version, "version", "", "version of the hub, which becomes the tag")
	flags.StringVar(&o.out, "out", "", "directory of the OCI layout, which must not exist or be one")
	flags.StringVar(&o.lock, "lock", "", "package-lock.json of the page, which is part of the binary")
	epoch := flags.Int64("created", 0, "time of the image in seconds since 1970 (SOURCE_DATE_EPOCH): the same sources give the same image")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.version == "" || o.out == "" || flags.NArg() == 0 {
		return o, errors.New("usage: image --version v0.1.0 --out DIRECTORY PLATFORM=BINARY...")
	}
	o.created = time.Unix(*epoch, 0).UTC()
	for _, argument := range flags.Args() {
		platform, path, ok := strings.Cut(argument, "=")
		if !ok || strings.Count(platform, "/") != 1 {
			return o, fmt.Errorf("%q: want PLATFORM=BINARY, such as linux/amd64=bin/ichor-hub", argument)
		}
		o.binaries = append(o.binaries, binary{platform, path})
	}
	return o, nil
}
