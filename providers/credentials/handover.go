// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"k8s.io/client-go/tools/clientcmd"

	"ichor.maesh.dev/hub/providers/target"
)

// Handover is what becomes of credentials while an authority is replaced by another.
type Handover struct {
	// Known are the authorities that the rotation is about: the old one and the new one. Others are left as they are.
	Known [][]byte

	// Trust are those of them that are trusted from now on.
	Trust [][]byte

	// Client is the client certificate from now on; an empty one leaves what is there.
	Client KeyPair
}

// trusted is a bundle of authorities after the hand-over, and whether the hand-over concerns it: a load balancer may have a certificate of
// some other authority, which nobody rotates.
func (h Handover) trusted(before []byte) (after []byte, concerned bool) {
	var kept [][]byte
	for _, certificate := range certificates(before) {
		if isOne(certificate, h.Known) {
			concerned = true
			continue
		}
		kept = append(kept, certificate)
	}
	for _, certificate := range h.Trust {
		kept = append(kept, certificates(certificate)...)
	}
	return bundled(kept), concerned
}

func isOne(certificate []byte, of [][]byte) bool {
	return slices.ContainsFunc(of, func(other []byte) bool {
		list := certificates(other)
		return len(list) > 0 && bytes.Equal(list[0], certificate)
	})
}

// replaces says whether a client certificate becomes another one: if it is of an authority that is rotated.
func (h Handover) replaces(certificate []byte) bool {
	return !h.Client.Empty() && len(certificate) > 0 && SignedBy(certificate, h.Known...)
}

// Talosconfig is a talosconfig after a hand-over: the context of the target has other authorities, and another client certificate.
func (h Handover) Talosconfig(data []byte, t target.Target) ([]byte, error) {
	made, err := h.talosconfig(data, t)
	if err != nil {
		return nil, fmt.Errorf("talosconfig is %w: %w", ErrInvalid, err)
	}
	return made, nil
}

func (h Handover) talosconfig(data []byte, t target.Target) ([]byte, error) {
	file, err := loadTalosconfig(data)
	if err != nil {
		return nil, err
	}
	name, err := chooseContext(file, t.TalosconfigContext, t.Name)
	if err != nil {
		return nil, err
	}
	chosen := *file.Contexts[name]
	authorities, err := base64.StdEncoding.DecodeString(chosen.CA)
	if err != nil {
		return nil, fmt.Errorf("context %q: ca is not base64: %w", name, err)
	}
	certificate, err := base64.StdEncoding.DecodeString(chosen.Crt)
	if err != nil {
		return nil, fmt.Errorf("context %q: crt is not base64: %w", name, err)
	}
	before := chosen
	if trusted, concerned := h.trusted(authorities); concerned {
		chosen.CA = base64.StdEncoding.EncodeToString(trusted)
	}
	if h.replaces(certificate) {
		chosen.Crt, chosen.Key = base64.StdEncoding.EncodeToString(h.Client.Certificate), base64.StdEncoding.EncodeToString(h.Client.Key)
	}
	if chosen.CA == before.CA && chosen.Crt == before.Crt {
		return data, nil
	}
	file.Contexts[name] = &chosen
	return file.Bytes()
}

// TalosClient is the client certificate of a talosconfig.
func TalosClient(chosen *clientconfig.Context) (KeyPair, error) {
	var pair KeyPair
	var err error
	if pair.Certificate, err = base64.StdEncoding.DecodeString(chosen.Crt); err != nil {
		return KeyPair{}, fmt.Errorf("crt is not base64: %w", err)
	}
	if pair.Key, err = base64.StdEncoding.DecodeString(chosen.Key); err != nil {
		return KeyPair{}, fmt.Errorf("key is not base64: %w", err)
	}
	return pair, nil
}

// Kubeconfig is a kubeconfig after a hand-over: the current context has other authorities, and another client certificate. Tokens stay:
// another key signs them.
func (h Handover) Kubeconfig(data []byte) ([]byte, error) {
	made, err := h.kubeconfig(data)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig is %w: %w", ErrInvalid, err)
	}
	return made, nil
}

func (h Handover) kubeconfig(data []byte) ([]byte, error) {
	file, err := clientcmd.Load(data)
	if err != nil {
		return nil, err
	}
	name, err := kubeContext(file, "")
	if err != nil {
		return nil, err
	}
	cluster, user := file.Clusters[file.Contexts[name].Cluster], file.AuthInfos[file.Contexts[name].AuthInfo]
	if cluster == nil || user == nil {
		return nil, fmt.Errorf("context %q names a cluster or a user that is not there", name)
	}
	changed := false
	if trusted, concerned := h.trusted(cluster.CertificateAuthorityData); concerned && !bytes.Equal(trusted, cluster.CertificateAuthorityData) {
		cluster.CertificateAuthorityData, changed = trusted, true
	}
	if h.replaces(user.ClientCertificateData) && !bytes.Equal(user.ClientCertificateData, h.Client.Certificate) {
		user.ClientCertificateData, user.ClientKeyData, changed = h.Client.Certificate, h.Client.Key, true
	}
	if !changed {
		return data, nil
	}
	return clientcmd.Write(*file)
}

// TalosAuthorities are the authorities that a talosconfig trusts, as one PEM.
func TalosAuthorities(chosen *clientconfig.Context) ([]byte, error) {
	authorities, err := base64.StdEncoding.DecodeString(chosen.CA)
	if err != nil {
		return nil, fmt.Errorf("ca is not base64: %w", err)
	}
	return authorities, nil
}
