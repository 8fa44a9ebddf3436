// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/client-go/kubernetes/scheme"

	"ichor.maesh.dev/hub/test/sim/etcd"
	"ichor.maesh.dev/hub/test/sim/kubeapi"
)

// held is what the etcd of a cluster holds: the objects of its Kubernetes API.
type held struct{ store *kubeapi.Store }

// objectKey begins the keys of objects.
const objectKey = "/registry/simulated/objects/"

// Dump implements etcd.Data.
func (h held) Dump() (revision int64, entries []etcd.Entry, err error) {
	revision = int64(h.store.Version()) // First: what is written from here on may be in it as well, and does not count.
	for _, obj := range h.store.Everything() {
		version, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
		if err != nil {
			return 0, nil, fmt.Errorf("version of %s: %w", obj.GetName(), err)
		}
		value, err := json.Marshal(obj)
		if err != nil {
			return 0, nil, fmt.Errorf("encode %s: %w", obj.GetName(), err)
		}
		key := strings.Join([]string{obj.GetObjectKind().GroupVersionKind().Kind, obj.GetNamespace(), obj.GetName()}, "/")
		entries = append(entries, etcd.Entry{Key: objectKey + key, Value: value, Revision: version})
		revision = max(revision, version)
	}
	return revision, entries, nil
}

// Load implements etcd.Data.
func (h held) Load(revision int64, entries []etcd.Entry) error {
	var objects []kubeapi.Object
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Key, objectKey) {
			continue
		}
		decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(entry.Value, nil, nil)
		if err != nil {
			return fmt.Errorf("read %s: %w", entry.Key, err)
		}
		if obj, ok := decoded.(kubeapi.Object); ok {
			objects = append(objects, obj)
		}
	}
	h.store.Rewind(uint64(revision), objects)
	return nil
}
