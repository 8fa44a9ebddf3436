// SPDX-License-Identifier: Apache-2.0

//go:build modules

// Package hack keeps two modules at a version that exists: k8s.io/kubernetes asks for v0.0.0 of all its parts, nothing here needs
// these two, and without them `go list -m all` fails.
package hack

import (
	_ "k8s.io/cri-streaming/pkg/streaming"
	_ "k8s.io/sample-apiserver/pkg/apiserver"
)
