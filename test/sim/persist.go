// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/kubernetes/scheme"

	"ichor.maesh.dev/hub/test/sim/kubeapi"
	"ichor.maesh.dev/hub/test/sim/machine"
	"ichor.maesh.dev/hub/test/sim/secrets"
)

func machinesFile(dir string) string { return filepath.Join(dir, "machines.json") }

func objectsFile(dir string) string { return filepath.Join(dir, "objects.jsonl") }

func sealedFile(dir string) string { return filepath.Join(dir, "sealed.json") }

// save keeps what a restart with the same directory finds again: the machines' disks and the Kubernetes objects.
func (c *Cluster) save() error {
	if len(c.nodes) == 0 || c.memory == nil && c.deep == nil {
		return nil
	}
	machines := map[string]machine.Snapshot{}
	for _, n := range c.nodes {
		snapshot, err := n.machine.Save()
		if err != nil {
			return fmt.Errorf("node %s: %w", n.Name(), err)
		}
		machines[n.Name()] = snapshot
	}
	data, err := json.MarshalIndent(machines, "", "  ")
	if err != nil {
		return fmt.Errorf("encode machines: %w", err)
	}
	var objects bytes.Buffer
	encoder := json.NewEncoder(&objects)
	for _, obj := range c.objects() {
		if err := encoder.Encode(obj); err != nil {
			return fmt.Errorf("encode object: %w", err)
		}
	}
	sealed, err := json.Marshal(c.sealed())
	if err != nil {
		return fmt.Errorf("encode the keys of the secrets: %w", err)
	}
	return errors.Join(
		os.WriteFile(machinesFile(c.dir), data, 0o600),
		os.WriteFile(objectsFile(c.dir), objects.Bytes(), 0o600),
		os.WriteFile(sealedFile(c.dir), sealed, 0o600),
	)
}

// objects are those that nothing else keeps: real API servers have theirs in etcd.
func (c *Cluster) objects() []kubeapi.Object {
	if c.memory == nil {
		return nil
	}
	return c.memory.Everything()
}

// sealed says how the objects are encrypted.
func (c *Cluster) sealed() map[string]secrets.EncryptionKey {
	if c.memory == nil {
		return nil
	}
	return c.memory.Sealed()
}

// loadSealed reads with which keys the Secrets are encrypted.
func (c *Cluster) loadSealed() error {
	if !exists(sealedFile(c.dir)) {
		return nil
	}
	data, err := os.ReadFile(sealedFile(c.dir))
	if err != nil {
		return err
	}
	sealed := map[string]secrets.EncryptionKey{}
	if err := json.Unmarshal(data, &sealed); err != nil {
		return fmt.Errorf("read %s: %w", sealedFile(c.dir), err)
	}
	c.memory.LoadSealed(sealed)
	return nil
}

func loadMachines(dir string) (map[string]machine.Snapshot, error) {
	if !exists(machinesFile(dir)) {
		return nil, nil
	}
	data, err := os.ReadFile(machinesFile(dir))
	if err != nil {
		return nil, err
	}
	machines := map[string]machine.Snapshot{}
	if err := json.Unmarshal(data, &machines); err != nil {
		return nil, fmt.Errorf("read %s: %w", machinesFile(dir), err)
	}
	return machines, nil
}

func loadObjects(dir string) ([]kubeapi.Object, error) {
	if !exists(objectsFile(dir)) {
		return nil, nil
	}
	data, err := os.ReadFile(objectsFile(dir))
	if err != nil {
		return nil, err
	}
	var objects []kubeapi.Object
	for line := range bytes.Lines(data) {
		decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(line, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", objectsFile(dir), err)
		}
		if obj, ok := decoded.(kubeapi.Object); ok {
			objects = append(objects, obj)
		}
	}
	return objects, nil
}
