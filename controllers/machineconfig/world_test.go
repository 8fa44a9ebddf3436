// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"bytes"
	"encoding/base64"
	"strings"
	"sync"
	"testing"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

const (
	v12, v13, v14 = "v1.12.4", "v1.13.6", "v1.14.1"
)

// bundle makes the secrets of a cluster; that takes a second.
var bundle = sync.OnceValue(func() *secrets.Bundle {
	made, err := secrets.NewBundle(secrets.NewClock(), talosconfig.TalosVersionCurrent)
	if err != nil {
		panic(err)
	}
	return made
})

// generated is a config as Talos of a version generates it: of one document or two before 1.14, of many from then on.
func generated(t testing.TB, version string, role machine.Type) []byte {
	t.Helper()
	contract, err := talosconfig.ParseContractFromVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	input, err := generate.NewInput("prod", "https://10.0.0.1:6443", "1.35.1", generate.WithVersionContract(contract),
		generate.WithSecretsBundle(bundle()), generate.WithInstallImage("factory.talos.dev/metal-installer/abc:"+version))
	if err != nil {
		t.Fatal(err)
	}
	made, err := input.Config(role)
	if err != nil {
		t.Fatal(err)
	}
	data, err := made.EncodeBytes(encoder.WithComments(encoder.CommentsAll))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// single is the main document of a config alone.
func single(t testing.TB, config []byte) []byte {
	t.Helper()
	documents, err := split(config)
	if err != nil {
		t.Fatal(err)
	}
	return documents[0].raw
}

// input is a machine that has just been found: what it runs is its base.
func input(config []byte, version string, patches ...string) Input {
	in := Input{Base: config, Active: config, Persistent: config, Version: version}
	for i, patch := range patches {
		in.Patches = append(in.Patches, v1alpha1.MachineConfigPatch{Name: string(rune('a' + i)), Patch: patch})
	}
	return in
}

// applied is the machine after it was given what it shall have.
func applied(t testing.TB, in Input) Input {
	t.Helper()
	made, err := Render(in)
	if err != nil {
		t.Fatal(err)
	}
	in.Active, in.Persistent = made, made
	return in
}

// leaked is a secret of the bundle that a text has in it, as it is or as base64; nothing means none.
func leaked(text string) string {
	b := bundle()
	list := []string{
		b.Secrets.BootstrapToken, b.Secrets.AESCBCEncryptionSecret, b.Secrets.SecretboxEncryptionSecret, b.TrustdInfo.Token,
		b.Cluster.Secret, b.Cluster.ID,
	}
	for _, key := range [][]byte{b.Certs.OS.Key, b.Certs.K8s.Key, b.Certs.K8sAggregator.Key, b.Certs.Etcd.Key, b.Certs.K8sServiceAccount.Key} {
		list = append(list, string(key), base64.StdEncoding.EncodeToString(key))
		for line := range bytes.Lines(key) {
			if trimmed := strings.TrimSpace(string(line)); !strings.HasPrefix(trimmed, "-----") {
				list = append(list, trimmed)
			}
		}
		encoded := base64.StdEncoding.EncodeToString(key)
		for ; len(encoded) > 128; encoded = encoded[64:] { // Not the header, which all keys have.
			list = append(list, encoded[64:128])
		}
	}
	for _, secret := range list {
		if secret != "" && strings.Contains(text, secret) {
			return secret
		}
	}
	return ""
}
