// SPDX-License-Identifier: Apache-2.0

package deep

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"ichor.maesh.dev/hub/test/sim/secrets"
)

// secretsPrefix is where API servers keep Secrets.
const secretsPrefix = "/registry/secrets/"

// Sealed reads from etcd with which key each Secret is encrypted there, by namespace/name.
func (c *Cluster) Sealed(ctx context.Context) (map[string]secrets.EncryptionKey, error) {
	_, client, err := c.ask(c.Leader())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	list, err := client.Get(ctx, secretsPrefix, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("read the Secrets in etcd: %w", err)
	}
	sealed := map[string]secrets.EncryptionKey{}
	for _, kv := range list.Kvs {
		sealed[strings.TrimPrefix(string(kv.Key), secretsPrefix)] = secrets.EncryptionKey{Prefix: prefixOf(kv.Value)}
	}
	return sealed, nil
}

// prefixOf is what stands before a value that is encrypted: k8s:enc:PROVIDER:VERSION:KEY: . It is empty for others.
func prefixOf(value []byte) string {
	const parts = 6
	fields := bytes.SplitN(value, []byte(":"), parts)
	if len(fields) < parts || !bytes.HasPrefix(value, []byte("k8s:enc:")) {
		return ""
	}
	return string(value[:len(value)-len(fields[parts-1])])
}
