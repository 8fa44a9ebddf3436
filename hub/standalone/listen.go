// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"

	"ichor.maesh.dev/hub/hub/standalone/atomicfile"
)

// listen opens the API's port on the loopback interface: the one that portFile keeps, so that kubeconfigs stay
// valid over restarts, or another one where somebody took it meanwhile.
//
// The supervisor listens, not its child: the port is never free for others between two runs of the child, and
// whoever connects meanwhile waits instead of failing.
func listen(portFile string) (*net.TCPListener, error) {
	kept, err := readPort(portFile)
	if err != nil {
		return nil, err
	}
	l, err := listenLoopback(kept)
	if err != nil && kept != 0 {
		l, err = listenLoopback(0)
	}
	if err != nil {
		return nil, fmt.Errorf("opening a port for the API: %w", err)
	}
	if port := l.Addr().(*net.TCPAddr).Port; port != kept {
		if err := atomicfile.Write(portFile, []byte(strconv.Itoa(port)+"\n")); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, nil
}

func listenLoopback(port int) (*net.TCPListener, error) {
	return net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
}

// readPort returns 0, that is any port, where none is kept.
func readPort(path string) (int, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the API's port: %w", err)
	}
	port, err := strconv.ParseUint(strings.TrimSpace(string(content)), 10, 16)
	if err != nil {
		return 0, fmt.Errorf("reading the API's port from %s: %w; remove the file to choose a new one", path, err)
	}
	return int(port), nil
}
