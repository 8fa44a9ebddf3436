// SPDX-License-Identifier: Apache-2.0

// Command release writes what a release consists of beside binaries and images: manifests, the provider for clusterctl, the chart.
//
//	release --version v0.1.0 --image REGISTRY/NAME CONFIG DIRECTORY
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"ichor.maesh.dev/hub/hack/release/assets"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	var o assets.Options
	flags.StringVar(&o.Version, "version", "", "version of the release, such as v0.1.0")
	flags.StringVar(&o.Image, "image", assets.Image, "image without tag")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 2 {
		return errors.New("usage: release --version v0.1.0 CONFIG DIRECTORY")
	}
	o.Config, o.Directory = flags.Arg(0), flags.Arg(1)
	written, err := assets.Write(o)
	for _, path := range written {
		fmt.Fprintln(os.Stdout, path)
	}
	return err
}
