// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// ParseKubeconfig reads the current context of a kubeconfig. It refuses what cannot work from a hub or must not: files and
// programs of the machine on which the kubeconfig was made, servers without https, connections that skip verification.
func ParseKubeconfig(data []byte) (*Kubeconfig, error) {
	file, err := clientcmd.Load(data)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig is %w: %w", ErrInvalid, err)
	}
	if err := checkKubeconfig(file); err != nil {
		return nil, fmt.Errorf("kubeconfig is %w: %w", ErrInvalid, err)
	}
	config, err := clientcmd.NewDefaultClientConfig(*file, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig is %w: %w", ErrInvalid, err)
	}
	parsed := &Kubeconfig{Config: config}
	if len(config.CertData) > 0 {
		if parsed.Expires, err = expiry(config.CertData); err != nil {
			return nil, fmt.Errorf("kubeconfig is %w: client-certificate-data of user %q: %w", ErrInvalid, file.Contexts[file.CurrentContext].AuthInfo, err)
		}
	}
	return parsed, nil
}

func checkKubeconfig(file *clientcmdapi.Config) error {
	current, ok := file.Contexts[file.CurrentContext]
	if !ok {
		return fmt.Errorf("current-context %q is not among the contexts %s", file.CurrentContext, names(file.Contexts))
	}
	cluster, ok := file.Clusters[current.Cluster]
	if !ok {
		return fmt.Errorf("cluster %q of context %q is not among the clusters %s", current.Cluster, file.CurrentContext, names(file.Clusters))
	}
	user, ok := file.AuthInfos[current.AuthInfo]
	if !ok {
		return fmt.Errorf("user %q of context %q is not among the users %s", current.AuthInfo, file.CurrentContext, names(file.AuthInfos))
	}
	if err := checkServer(cluster, current.Cluster); err != nil {
		return err
	}
	return checkUser(user, current.AuthInfo)
}

func checkServer(cluster *clientcmdapi.Cluster, name string) error {
	server, err := url.Parse(cluster.Server)
	switch {
	case err != nil:
		return fmt.Errorf("server of cluster %q: %w", name, err)
	case server.Scheme != "https" || server.Host == "":
		return fmt.Errorf("server %q of cluster %q must be https://HOST:PORT", cluster.Server, name)
	case cluster.InsecureSkipTLSVerify:
		return fmt.Errorf("cluster %q has insecure-skip-tls-verify; give certificate-authority-data instead", name)
	case cluster.CertificateAuthority != "":
		return fmt.Errorf("cluster %q names the file %q as certificate-authority; use certificate-authority-data (kubectl config view --flatten)", name, cluster.CertificateAuthority)
	}
	return nil
}

func checkUser(user *clientcmdapi.AuthInfo, name string) error {
	switch {
	case user.Exec != nil:
		return fmt.Errorf("user %q runs the program %q (exec); the hub needs a client certificate or a token", name, user.Exec.Command)
	case user.AuthProvider != nil:
		return fmt.Errorf("user %q uses the auth-provider %q; the hub needs a client certificate or a token", name, user.AuthProvider.Name)
	case user.ClientCertificate != "" || user.ClientKey != "" || user.TokenFile != "":
		return fmt.Errorf("user %q names files; use the fields ending in -data, and token (kubectl config view --flatten)", name)
	}
	return nil
}

// ParseTalosconfig reads one context of a talosconfig: the wanted one, else the one named like the cluster, else the only one.
func ParseTalosconfig(data []byte, wanted, cluster string) (*Talosconfig, error) {
	file, err := loadTalosconfig(data)
	if err != nil {
		return nil, fmt.Errorf("talosconfig is %w: %w", ErrInvalid, err)
	}
	name, err := chooseContext(file, wanted, cluster)
	if err != nil {
		return nil, fmt.Errorf("talosconfig is %w: %w", ErrInvalid, err)
	}
	chosen := file.Contexts[name]
	if err := checkEndpoints(chosen.Endpoints); err != nil {
		return nil, fmt.Errorf("talosconfig is %w: context %q: %w", ErrInvalid, name, err)
	}
	expires, err := talosExpiry(chosen)
	if err != nil {
		return nil, fmt.Errorf("talosconfig is %w: context %q: %w", ErrInvalid, name, err)
	}
	return &Talosconfig{Context: chosen, Name: name, Expires: expires}, nil
}

// loadTalosconfig survives that machinery panics about a context without content: a Secret must not end the hub.
func loadTalosconfig(data []byte) (file *clientconfig.Config, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			file, err = nil, fmt.Errorf("it cannot be read: %v", cause)
		}
	}()
	return clientconfig.FromBytes(data)
}

func chooseContext(file *clientconfig.Config, wanted, cluster string) (string, error) {
	for _, name := range []string{wanted, cluster} {
		if file.Contexts[name] != nil {
			return name, nil
		}
		if name != "" && name == wanted {
			return "", fmt.Errorf("context %q is not among the contexts %s", wanted, names(file.Contexts))
		}
	}
	if len(file.Contexts) == 1 {
		for name, only := range file.Contexts {
			if only != nil {
				return name, nil
			}
		}
	}
	return "", fmt.Errorf("no context is named %q and there is not exactly one: choose one of %s", cluster, names(file.Contexts))
}

// checkEndpoints refuses what means "this machine" wherever it is read. The rest of 127.0.0.0/8 is left: simulated nodes live there.
func checkEndpoints(endpoints []string) error {
	if len(endpoints) == 0 {
		return errors.New("endpoints is empty: list the control planes")
	}
	for _, endpoint := range endpoints {
		host := endpoint
		if h, _, err := net.SplitHostPort(endpoint); err == nil {
			host = h
		}
		if host == "" || host == "localhost" {
			return fmt.Errorf("endpoint %q is not reachable from a hub: list addresses of control planes", endpoint)
		}
		if addr, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil && (addr == netip.MustParseAddr("127.0.0.1") || addr == netip.IPv6Loopback() || addr.IsUnspecified()) {
			return fmt.Errorf("endpoint %q is not reachable from a hub: list addresses of control planes", endpoint)
		}
	}
	return nil
}

func talosExpiry(c *clientconfig.Context) (time.Time, error) {
	if c.Crt == "" || c.Key == "" || c.CA == "" {
		return time.Time{}, errors.New("ca, crt and key are needed: the hub authenticates by certificate")
	}
	crt, err := base64.StdEncoding.DecodeString(c.Crt)
	if err != nil {
		return time.Time{}, fmt.Errorf("crt is not base64: %w", err)
	}
	expires, err := expiry(crt)
	if err != nil {
		return time.Time{}, fmt.Errorf("crt: %w", err)
	}
	return expires, nil
}

// expiry is the end of the first certificate in a PEM file.
func expiry(data []byte) (time.Time, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return time.Time{}, errors.New("no PEM block found")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, err
	}
	return cert.NotAfter, nil
}

func names[V any](m map[string]V) string {
	list := make([]string, 0, len(m))
	for name := range m {
		list = append(list, fmt.Sprintf("%q", name))
	}
	slices.Sort(list)
	return "[" + strings.Join(list, " ") + "]"
}
