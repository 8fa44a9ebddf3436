// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Binary is the path of a binary that the Makefile builds: the one that the environment names (ICHOR_BINARY,
// ICHOR_HUB_BINARY, ICHOR_TALOSCTL_BINARY and so on), else the one in bin/ at the root of the module.
func Binary(name string) (string, error) {
	variable := strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "_BINARY"
	if !strings.HasPrefix(variable, "ICHOR_") {
		variable = "ICHOR_" + variable
	}
	path := os.Getenv(variable)
	if path == "" {
		root, err := moduleRoot()
		if err != nil {
			return "", err
		}
		path = filepath.Join(root, "bin", name)
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("finding %s (run `make build-%s`, or set %s): %w", name, name, variable, err)
	}
	return path, nil
}

// RequireVariable makes tests fail for want of a binary, where `go test` alone leaves them out.
const RequireVariable = "ICHOR_REQUIRE_BINARIES"

// MayRun is for the TestMain of a package that tests with a binary which takes long to build. It says on out that the binary is not
// there, since nobody sees what a test says that is left out, and returns false where it is required.
func MayRun(out io.Writer, name string) bool {
	_, err := Binary(name)
	if err == nil {
		return true
	}
	required := os.Getenv(RequireVariable) == "1"
	outcome := "the tests with it are left out"
	if required {
		outcome = RequireVariable + "=1 asks for it"
	}
	_, _ = fmt.Fprintf(out, "%s: %v\n", outcome, err)
	return !required
}

// moduleRoot is the nearest directory with a go.mod, from the working directory upwards: tests run in the
// directory of their package.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the module's root: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("finding the module's root: no go.mod in the working directory or above")
		}
		dir = parent
	}
}
