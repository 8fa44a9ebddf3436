// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"bytes"
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// KeyPair reads a certificate and its key, which is in the file beside it or in the same one.
func (f *Files) KeyPair(certificate string) (tls.Certificate, error) {
	pair, err := tls.X509KeyPair(f.Content[certificate], f.Content[KeyPath(certificate)])
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s: %w", certificate, err)
	}
	return pair, nil
}

// Pool reads the CAs in a file.
func (f *Files) Pool(path string) (*stdx509.CertPool, error) {
	pool := stdx509.NewCertPool()
	if !pool.AppendCertsFromPEM(f.Content[path]) {
		return nil, fmt.Errorf("%s: %w", path, errNoCertificate)
	}
	return pool, nil
}

// Certificate reads the first certificate in a file.
func (f *Files) Certificate(path string) (*stdx509.Certificate, error) {
	certificate, err := firstCertificate(f.Content[path])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return certificate, nil
}

// Roots are what the files were made from.
func (f *Files) Roots() *Roots { return f.roots }

// Flags are the arguments of the API server that name its files or come from the same part of the config. The files are under root,
// which is empty on a machine.
func (f *Files) Flags(root string) []string {
	kubernetes := f.roots.Kubernetes
	if kubernetes == nil {
		return nil
	}
	flags := []string{}
	for _, flag := range []struct{ name, path string }{
		{"client-ca-file", ClientCA},
		{"encryption-provider-config", EncryptionConfig},
		{"etcd-cafile", EtcdClientCA}, {"etcd-certfile", EtcdClient}, {"etcd-keyfile", KeyPath(EtcdClient)},
		{"kubelet-client-certificate", KubeletClientOfServer}, {"kubelet-client-key", KeyPath(KubeletClientOfServer)},
		{"proxy-client-cert-file", FrontProxy}, {"proxy-client-key-file", KeyPath(FrontProxy)},
		{"requestheader-client-ca-file", AggregatorCA},
		{"service-account-key-file", ServiceAccountKeys}, {"service-account-signing-key-file", ServiceAccountKey},
		{"tls-cert-file", APIServer}, {"tls-private-key-file", KeyPath(APIServer)},
	} {
		flags = append(flags, "--"+flag.name+"="+root+flag.path)
	}
	flags = append(flags, "--requestheader-allowed-names=front-proxy-client", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group", "--requestheader-username-headers=X-Remote-User",
		"--enable-bootstrap-token-auth=true", "--api-audiences="+strings.Join(kubernetes.APIAudiences, ","))
	for _, issuer := range slices.Concat([]string{kubernetes.IssuerURL}, kubernetes.AcceptedIssuers) {
		flags = append(flags, "--service-account-issuer="+issuer)
	}
	return flags
}

// Keep are these files, but for those that are to be as they are among others.
func (f *Files) Keep(others *Files, kept func(path string) bool) *Files {
	content := maps.Clone(f.Content)
	maps.DeleteFunc(content, func(path string, _ []byte) bool { return kept(path) })
	if others != nil {
		for path, data := range others.Content {
			if kept(path) {
				content[path] = data
			}
		}
	}
	return &Files{Content: content, Version: f.Version, roots: f.roots}
}

// Changed lists the paths whose content is not that of other files, in their order.
func (f *Files) Changed(other *Files) []string {
	var theirs map[string][]byte
	if other != nil {
		theirs = other.Content
	}
	var changed []string
	for path, content := range f.Content {
		if was, ok := theirs[path]; !ok || !bytes.Equal(was, content) {
			changed = append(changed, path)
		}
	}
	for path := range theirs {
		if _, ok := f.Content[path]; !ok {
			changed = append(changed, path)
		}
	}
	slices.Sort(changed)
	return changed
}

// places are the directories that hold nothing but such files.
var places = []string{constants.KubebernetesStaticSecretsDir, constants.EtcdPKIPath, constants.KubernetesConfigBaseDir, constants.KubeletPKIDir}

// Write brings the files under a directory in line and returns the paths of those that have changed. Each is replaced as a whole, and
// those that are no longer wanted go.
func (f *Files) Write(root string) ([]string, error) {
	there, err := read(root)
	if err != nil {
		return nil, err
	}
	changed := f.Changed(&Files{Content: there})
	for _, path := range changed {
		content, wanted := f.Content[path]
		if !wanted {
			err = os.Remove(filepath.Join(root, path))
		} else {
			err = replace(filepath.Join(root, path), content)
		}
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", path, err)
		}
	}
	return changed, nil
}

func replace(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	fresh := path + ".new"
	if err := os.WriteFile(fresh, content, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

// ReadFiles reads what Write has written, to go on from it after a restart. The version goes on from the given one.
func ReadFiles(root string, version int) (*Files, error) {
	content, err := read(root)
	if err != nil {
		return nil, err
	}
	return &Files{Content: content, Version: version}, nil
}

func read(root string) (map[string][]byte, error) {
	there := map[string][]byte{}
	for _, place := range places {
		err := filepath.WalkDir(filepath.Join(root, place), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			content, err := os.ReadFile(path) //nolint:gosec // The directory is the simulator's own.
			there[strings.TrimPrefix(path, filepath.Clean(root))] = content
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read %s: %w", place, err)
		}
	}
	return there, nil
}

// Paths are those of all files, in their order.
func (f *Files) Paths() []string { return slices.Sorted(maps.Keys(f.Content)) }
