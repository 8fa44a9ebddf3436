// SPDX-License-Identifier: Apache-2.0

// Command privilege holds the roles that are shipped against what the API servers of tests wrote down: every right is to be used, but those
// of people, of which it tells the ones that no test has used; the hub is to be refused nothing, and of Secrets it is to ask for its own only.
// `make test-privilege` runs it.
//
//	privilege CONFIG EXCEPTIONS DIRECTORY
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "privilege:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, args []string) error {
	if len(args) != 3 {
		return errors.New("usage: privilege CONFIG EXCEPTIONS DIRECTORY")
	}
	roles, err := shipped(args[0])
	if err != nil {
		return err
	}
	known, err := readExceptions(args[1])
	if err != nil {
		return err
	}
	logs, err := filepath.Glob(filepath.Join(args[2], "*.log"))
	if err != nil {
		return err
	}
	f := newFindings(roles)
	for _, log := range logs {
		if err := f.readFile(log); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%d audit logs with %d requests of the hub; %d rights of %d roles\n", len(logs), f.requests, len(f.rights.all), len(roles))
	return f.judge(out, known)
}

// findings are what the audit shows.
type findings struct {
	rights   *rights
	refused  map[refusal]string // With one example.
	secrets  map[string]bool
	requests int // Of the hub.
}

func newFindings(roles []role) *findings {
	return &findings{rights: newRights(roles), refused: map[refusal]string{}, secrets: map[string]bool{}}
}

func (f *findings) readFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // It is read only.
	if err := f.read(file); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// read reads a log, which has an event in each line.
func (f *findings) read(log io.Reader) error {
	const most = 16 << 20
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, most)
	for number := 1; lines.Scan(); number++ {
		event := &auditv1.Event{}
		if err := json.Unmarshal(lines.Bytes(), event); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		if err := f.add(event); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	return lines.Err()
}

func (f *findings) add(event *auditv1.Event) error {
	uses, err := usesOf(event)
	if err != nil {
		return err
	}
	for _, use := range uses {
		f.rights.use(use)
	}
	if refusal, how, refused := refusedOf(event); refused {
		f.refused[refusal] = how
	}
	if trouble := secretTrouble(event); trouble != "" {
		f.secrets[trouble] = true
	}
	if over(event) && byHub(event) {
		f.requests++
	}
	return nil
}

// errFound is why the run fails whose findings were printed.
var errFound = errors.New("the roles and what was asked for do not fit together")

// judge prints what is not as it should be.
func (f *findings) judge(out io.Writer, known exceptions) error {
	if f.requests == 0 {
		return errors.New("the hub asked for nothing: the tests did not run, or wrote no audit")
	}
	unused, err := known.apply(f.rights)
	found := err != nil
	for _, grant := range unused {
		if f.rights.people[grant.role] {
			fmt.Fprintf(out, "not seen: %s\n", grant)
			continue
		}
		found = true
		fmt.Fprintf(out, "unused: %s\n", grant)
	}
	for refusal, how := range f.refused {
		if !known.knows(refusal) {
			found = true
			fmt.Fprintf(out, "refused: %s: %s\n", refusal, how)
		}
	}
	for _, trouble := range slices.Sorted(maps.Keys(f.secrets)) {
		found = true
		fmt.Fprintf(out, "secrets: %s\n", trouble)
	}
	if found {
		return errors.Join(err, errFound)
	}
	fmt.Fprintln(out, "every right of hub and programs was used, or is an exception; the hub was refused nothing, and asked for no Secret but its own")
	return nil
}
