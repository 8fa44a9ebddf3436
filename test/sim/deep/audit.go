// SPDX-License-Identifier: Apache-2.0

package deep

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// auditPolicy has the API servers tell of all changes but those of the simulation's own: of the API servers, of the kubelets, and of the
// controllers, which act with the certificate of the former.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  verbs: [get, list, watch]
- level: None
  userGroups: ["system:nodes"]
- level: None
  users: ["system:apiserver", "apiserver-kubelet-client"]
- level: Metadata
`

// auditLog is where a machine's API server writes what was changed.
func (n *node) auditLog() string { return n.log("audit") }

// auditArguments have the API server write its audit.
func (n *node) auditArguments() ([]string, error) {
	path := filepath.Join(n.dir, "audit-policy.yaml")
	if err := os.WriteFile(path, []byte(auditPolicy), 0o600); err != nil {
		return nil, fmt.Errorf("write the policy of the audit: %w", err)
	}
	return []string{"--audit-policy-file=" + path, "--audit-log-path=" + n.auditLog()}, nil
}

// followAudit passes on what an API server writes from now on, until the cluster ends.
func (c *Cluster) followAudit(n *node) {
	tail := &tail{path: n.auditLog()}
	if info, err := os.Stat(tail.path); err == nil {
		tail.offset = info.Size()
	}
	c.group.Go(func() {
		for await(c.life, nil, pollEvery) == nil {
			lines, err := tail.read()
			if err != nil {
				c.Logger.Error(err, "An audit was not read", "cluster", c.Name, "node", n.name)
				return
			}
			for _, line := range lines {
				event := &auditv1.Event{}
				if json.Unmarshal(line, event) == nil && event.ObjectRef != nil {
					c.Audit(n.name, event)
				}
			}
		}
	})
}

// tail reads a file that grows.
type tail struct {
	path   string
	offset int64
}

// read returns the lines that are whole and were not read yet.
func (t *tail) read() ([][]byte, error) {
	file, err := os.Open(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // It was only read.
	if _, err := file.Seek(t.offset, io.SeekStart); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	whole := bytes.LastIndexByte(data, '\n') + 1
	t.offset += int64(whole)
	if whole == 0 {
		return nil, nil
	}
	return bytes.Split(bytes.TrimSuffix(data[:whole], []byte("\n")), []byte("\n")), nil
}
