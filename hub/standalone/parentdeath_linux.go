// SPDX-License-Identifier: Apache-2.0

package standalone

import "syscall"

// withParentDeath has the kernel kill the child, however busy it is, when the thread that started it ends.
func withParentDeath(attr *syscall.SysProcAttr) *syscall.SysProcAttr {
	attr.Pdeathsig = syscall.SIGKILL
	return attr
}
