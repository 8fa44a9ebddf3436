// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ResidentMemory is the resident memory of a process, in megabytes of 1,000,000 bytes. It is read from /proc.
func ResidentMemory(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kilobytes, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kilobytes * 1024 / 1e6, err
		}
	}
	return 0, fmt.Errorf("process %d tells no resident memory", pid)
}

// Child is the only child of a process, whichever of its threads started it. It is read from /proc.
func Child(pid int) (int, error) { return childWith(pid, "") }

// childWith is the child of a process that was started with an argument; any child if the argument is empty.
func childWith(pid int, argument string) (int, error) {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return 0, fmt.Errorf("finding the children of process %d: %w", pid, err)
	}
	for _, list := range lists {
		children, err := os.ReadFile(list)
		if err != nil {
			continue // The thread has ended.
		}
		for _, child := range strings.Fields(string(children)) {
			arguments, err := os.ReadFile("/proc/" + child + "/cmdline")
			if err == nil && (argument == "" || slices.Contains(strings.Split(string(arguments), "\x00"), argument)) {
				return strconv.Atoi(child)
			}
		}
	}
	return 0, fmt.Errorf("process %d has no such child", pid)
}

// CPUSeconds is the processor time that a process has used so far. It is read from /proc.
func CPUSeconds(pid int) (float64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the processor time of process %d: %w", pid, err)
	}
	// The name in parentheses may hold anything; user and system ticks are the 12th and 13th field after it.
	_, after, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0, fmt.Errorf("process %d tells no processor time", pid)
	}
	var ticks float64
	for _, field := range fields[11:13] {
		count, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the processor time of process %d: %w", pid, err)
		}
		ticks += count
	}
	const ticksPerSecond = 100
	return ticks / ticksPerSecond, nil
}
