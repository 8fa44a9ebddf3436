// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// AuditLogFlag and AuditPolicyFlag are the flags of Command for an audit, named as those of kube-apiserver.
const (
	AuditLogFlag    = "audit-log-path"
	AuditPolicyFlag = "audit-policy-file"
)

// Audit has the API server write down who asked it for what, as kube-apiserver does. Its zero value has nothing written down.
type Audit struct {
	// Log is the file that events are added to, each a line of JSON. It is rotated, and what was there before is kept beside it for a while.
	Log string
	// Policy is the file with the policy (audit.k8s.io/v1) that says what is written down.
	Policy string
}

// absolute is the same audit for a process with another working directory.
func (a Audit) absolute() (Audit, error) {
	if a == (Audit{}) {
		return a, nil
	}
	if a.Log == "" || a.Policy == "" {
		return Audit{}, errors.New("audit of the API server: want a log and a policy, or neither")
	}
	if _, err := os.Stat(a.Policy); err != nil {
		return Audit{}, fmt.Errorf("audit policy of the API server: %w", err)
	}
	var errs [2]error
	a.Log, errs[0] = filepath.Abs(a.Log)
	a.Policy, errs[1] = filepath.Abs(a.Policy)
	if err := errors.Join(errs[:]...); err != nil {
		return Audit{}, fmt.Errorf("finding the files of the API server's audit: %w", err)
	}
	return a, nil
}

// args are the arguments of Command for the audit.
func (a Audit) args() []string {
	if a == (Audit{}) {
		return nil
	}
	return []string{"--" + AuditLogFlag, a.Log, "--" + AuditPolicyFlag, a.Policy}
}
