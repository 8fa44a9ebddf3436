// SPDX-License-Identifier: Apache-2.0

package framework

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"ichor.maesh.dev/hub/hub/standalone"
)

// AuditVariable names a directory in which the API servers of tests write down who asked them for what, each in a file of its own.
// `make test-privilege` holds the hub's roles against it.
const AuditVariable = "ICHOR_AUDIT_DIR"

//go:embed audit-policy.yaml
var auditPolicy []byte

// Audit is what the API server of a test writes down: nothing, unless the environment asks for it.
func Audit() (standalone.Audit, error) {
	dir := os.Getenv(AuditVariable)
	if dir == "" {
		return standalone.Audit{}, nil
	}
	policy, err := writeAuditPolicy(dir)
	if err != nil {
		return standalone.Audit{}, fmt.Errorf("%s: %w", AuditVariable, err)
	}
	log, err := os.CreateTemp(dir, "audit-*.log")
	if err != nil {
		return standalone.Audit{}, fmt.Errorf("%s: %w", AuditVariable, err)
	}
	return standalone.Audit{Log: log.Name(), Policy: policy}, log.Close()
}

// writeAuditPolicy puts the policy beside the logs. Several tests may do so at once, and each finds all of it.
func writeAuditPolicy(dir string) (string, error) {
	path := filepath.Join(dir, "policy.yaml")
	file, err := os.CreateTemp(dir, "policy-*")
	if err != nil {
		return "", err
	}
	_, err = file.Write(auditPolicy)
	return path, errors.Join(err, file.Close(), os.Rename(file.Name(), path))
}

// AuditFlags are the flags of `ichor-hub serve --standalone` for Audit.
func AuditFlags() ([]string, error) {
	audit, err := Audit()
	if err != nil || audit == (standalone.Audit{}) {
		return nil, err
	}
	return []string{"--api-server-audit-log", audit.Log, "--api-server-audit-policy", audit.Policy}, nil
}
