// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// Kubeconfig is a usable context of a kubeconfig.
type Kubeconfig struct {
	// Config reaches the target's Kubernetes API.
	Config *rest.Config

	// Context is the name of the context.
	Context string

	// Version changes with the Secret.
	Version string

	// Certificate is the client certificate; nil where a token or a password is used.
	Certificate *Certificate

	file *clientcmdapi.Config
}

// KubeconfigOptions are what a user decides about a kubeconfig.
type KubeconfigOptions struct {
	// Context is the context to use; empty means the current one, else the only one.
	Context string

	// AllowInsecure lets a kubeconfig through that does not check the certificate of the server.
	AllowInsecure bool
}

// ParseKubeconfig reads one context of a kubeconfig. It refuses what cannot work from a hub or must not: files and programs of the
// machine on which the kubeconfig was made, servers without https, and, unless that is allowed, connections that skip verification.
func ParseKubeconfig(data []byte, options KubeconfigOptions) (*Kubeconfig, error) {
	parsed, err := parseKubeconfig(data, options)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig is %w: %w", ErrInvalid, err)
	}
	return parsed, nil
}

func parseKubeconfig(data []byte, options KubeconfigOptions) (*Kubeconfig, error) {
	if err := expect(kubeconfigDocument, data); err != nil {
		return nil, err
	}
	file, err := clientcmd.Load(data)
	if err != nil {
		return nil, err
	}
	if file.CurrentContext, err = kubeContext(file, options.Context); err != nil {
		return nil, err
	}
	if err := checkKubeconfig(file, options.AllowInsecure); err != nil {
		return nil, err
	}
	config, err := clientcmd.NewDefaultClientConfig(*file, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	parsed := &Kubeconfig{Config: config, Context: file.CurrentContext, file: file}
	if len(config.CertData) > 0 {
		user := fmt.Sprintf("user %q", file.Contexts[file.CurrentContext].AuthInfo)
		if parsed.Certificate, err = parseCertificate(user, config.CertData, config.KeyData, config.CAData); err != nil {
			return nil, fmt.Errorf("client-certificate-data of %s: %w", user, err)
		}
	}
	return parsed, nil
}

func kubeContext(file *clientcmdapi.Config, wanted string) (string, error) {
	name := cmp.Or(wanted, file.CurrentContext)
	if name == "" && len(file.Contexts) == 1 {
		for only := range file.Contexts {
			name = only
		}
	}
	switch {
	case name == "" && len(file.Contexts) > 0:
		return "", fmt.Errorf("current-context is not set and there is not exactly one context: choose one of %s", names(file.Contexts))
	case file.Contexts[name] == nil && wanted == "":
		return "", fmt.Errorf("current-context %q is not among the contexts %s", name, names(file.Contexts))
	case file.Contexts[name] == nil:
		return "", fmt.Errorf("context %q is not among the contexts %s", name, names(file.Contexts))
	}
	return name, nil
}

func checkKubeconfig(file *clientcmdapi.Config, allowInsecure bool) error {
	current := file.Contexts[file.CurrentContext]
	cluster, ok := file.Clusters[current.Cluster]
	if !ok {
		return fmt.Errorf("cluster %q of context %q is not among the clusters %s", current.Cluster, file.CurrentContext, names(file.Clusters))
	}
	user, ok := file.AuthInfos[current.AuthInfo]
	if !ok {
		return fmt.Errorf("user %q of context %q is not among the users %s", current.AuthInfo, file.CurrentContext, names(file.AuthInfos))
	}
	for _, check := range []func() error{
		func() error { return checkServer(cluster.Server) },
		func() error { return checkTrust(cluster, allowInsecure) },
		func() error { return checkProxy(cluster.ProxyURL) },
	} {
		if err := check(); err != nil {
			return fmt.Errorf("cluster %q: %w", current.Cluster, err)
		}
	}
	if err := checkUser(user); err != nil {
		return fmt.Errorf("user %q %w", current.AuthInfo, err)
	}
	return nil
}

func checkServer(text string) error {
	server, err := url.Parse(text)
	switch {
	case err != nil || server.Scheme != "https" || server.Hostname() == "":
		return fmt.Errorf("server %q must be https://HOST:PORT", text)
	case server.Port() == "":
		return nil
	}
	if port, err := strconv.ParseUint(server.Port(), 10, 16); err != nil || port == 0 {
		return fmt.Errorf("server %q must be https://HOST:PORT with a port from 1 to 65535", text)
	}
	return nil
}

func checkTrust(cluster *clientcmdapi.Cluster, allowInsecure bool) error {
	switch {
	case cluster.CertificateAuthority != "":
		return fmt.Errorf("certificate-authority names the file %q; use certificate-authority-data (kubectl config view --flatten)", cluster.CertificateAuthority)
	case cluster.InsecureSkipTLSVerify && !allowInsecure:
		return errors.New("insecure-skip-tls-verify is set; give certificate-authority-data instead, or allow it with " +
			"--allow-insecure-kubeconfig (spec.access.kubernetesServerVerification: Skipped)")
	case cluster.InsecureSkipTLSVerify && len(cluster.CertificateAuthorityData) > 0:
		return errors.New("insecure-skip-tls-verify and certificate-authority-data are both set; remove one of them")
	case len(cluster.CertificateAuthorityData) > 0:
		if err := checkAuthorities(cluster.CertificateAuthorityData); err != nil {
			return fmt.Errorf("certificate-authority-data: %w", err)
		}
	}
	return nil
}

// proxySchemes are what the hub, like kubectl, can go through.
var proxySchemes = []string{"http", "https", "socks5"}

func checkProxy(text string) error {
	if text == "" {
		return nil
	}
	proxy, err := url.Parse(text)
	if err != nil || proxy.Hostname() == "" || !slices.Contains(proxySchemes, proxy.Scheme) {
		return fmt.Errorf("proxy-url %q must be one of http://HOST:PORT, https://HOST:PORT and socks5://HOST:PORT", text)
	}
	return nil
}

func checkUser(user *clientcmdapi.AuthInfo) error {
	for _, field := range []struct{ name, file string }{
		{"client-certificate", user.ClientCertificate}, {"client-key", user.ClientKey}, {"tokenFile", user.TokenFile},
	} {
		if field.file != "" {
			return fmt.Errorf("names the file %q as %s; use the fields ending in -data, and token (kubectl config view --flatten)", field.file, field.name)
		}
	}
	switch {
	case user.Exec != nil:
		return fmt.Errorf("runs the program %q (exec); the hub needs a client certificate or a token", user.Exec.Command)
	case user.AuthProvider != nil:
		return fmt.Errorf("uses the auth-provider %q; the hub needs a client certificate or a token", user.AuthProvider.Name)
	case len(user.ClientCertificateData) > 0 && len(user.ClientKeyData) == 0:
		return errors.New("has client-certificate-data without client-key-data")
	case len(user.ClientKeyData) > 0 && len(user.ClientCertificateData) == 0:
		return errors.New("has client-key-data without client-certificate-data")
	case len(user.ClientCertificateData) == 0 && user.Token == "" && user.Username == "":
		return errors.New("has nothing to prove who it is; the hub needs a client certificate or a token")
	}
	return nil
}

// Check says why the kubeconfig cannot be used at a time; nil if it can.
func (k *Kubeconfig) Check(now time.Time) *Problem {
	return k.Certificate.check(now, v1alpha1.KubeconfigExpiredReason)
}

// Warning says what will keep the kubeconfig from being used soon; nil if nothing does.
func (k *Kubeconfig) Warning(now time.Time) *Problem { return k.Certificate.warning(now) }

// Minify writes a kubeconfig with nothing but the context that was chosen: credentials of other clusters stay where they are.
func (k *Kubeconfig) Minify() ([]byte, error) {
	file := k.file.DeepCopy()
	if err := clientcmdapi.MinifyConfig(file); err != nil {
		return nil, fmt.Errorf("leaving other contexts out of the kubeconfig: %w", err)
	}
	data, err := clientcmd.Write(*file)
	if err != nil {
		return nil, fmt.Errorf("leaving other contexts out of the kubeconfig: %w", err)
	}
	return data, nil
}

// Several says whether the file has other contexts than the chosen one.
func (k *Kubeconfig) Several() bool { return len(k.file.Contexts) > 1 }
