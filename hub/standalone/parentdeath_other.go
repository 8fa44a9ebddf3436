// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package standalone

import "syscall"

// withParentDeath changes nothing: here the lifeline alone ends the child.
func withParentDeath(attr *syscall.SysProcAttr) *syscall.SysProcAttr { return attr }
