// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Last octets of a cluster's addresses.
const (
	firstControlPlane = 1
	firstWorker       = 101
	endpointOctet     = 254
)

// network is a claimed range 127.<octet>.0.0/16. The claim is a listener on an address that no cluster uses, so that it
// ends with the process, however that ends.
type network struct {
	octet byte
	claim net.Listener
}

// claimNetwork takes the wanted network, else the one that dir was used with before, else the first free one.
func claimNetwork(dir string, wanted byte) (*network, error) {
	if wanted != 0 {
		return claim(wanted)
	}
	if previous, ok := previousNetwork(dir); ok {
		if n, err := claim(previous); err == nil {
			return n, nil
		}
	}
	for octet := byte(1); octet < 255; octet++ {
		if n, err := claim(octet); err == nil {
			return n, nil
		}
	}
	return nil, errors.New("no free network in 127/8")
}

func claim(octet byte) (*network, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(fmt.Sprintf("127.%d.0.1", octet), "50000"))
	if err != nil {
		return nil, fmt.Errorf("network 127.%d.0.0/16 is taken: %w", octet, err)
	}
	return &network{octet: octet, claim: l}, nil
}

func (n *network) release() { _ = n.claim.Close() }

func (n *network) address(cluster, node int) string {
	return fmt.Sprintf("127.%d.%d.%d", n.octet, cluster, node)
}

func networkFile(dir string) string { return filepath.Join(dir, "network") }

func previousNetwork(dir string) (byte, bool) {
	data, err := os.ReadFile(networkFile(dir))
	if err != nil {
		return 0, false
	}
	octet, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 8)
	return byte(octet), err == nil && octet > 0 && octet < 255
}

func (n *network) remember(dir string) error {
	return os.WriteFile(networkFile(dir), []byte(strconv.Itoa(int(n.octet))+"\n"), 0o600)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
