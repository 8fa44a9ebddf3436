// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/role"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// Talosconfig is a usable context of a talosconfig.
type Talosconfig struct {
	// Context holds endpoints and keys.
	Context *clientconfig.Context

	// Name is the name of the context.
	Name string

	// Version changes with the Secret and the choice of context.
	Version string

	// Certificate is the client certificate.
	Certificate *Certificate

	several bool
}

// ParseTalosconfig reads one context of a talosconfig: the wanted one, else the one named like the cluster, else the only one.
func ParseTalosconfig(data []byte, wanted, cluster string) (*Talosconfig, error) {
	parsed, err := parseTalosconfig(data, wanted, cluster)
	if err != nil {
		return nil, fmt.Errorf("talosconfig is %w: %w", ErrInvalid, err)
	}
	return parsed, nil
}

func parseTalosconfig(data []byte, wanted, cluster string) (*Talosconfig, error) {
	if err := expect(talosconfigDocument, data); err != nil {
		return nil, err
	}
	file, err := loadTalosconfig(data)
	if err != nil {
		return nil, err
	}
	name, err := chooseContext(file, wanted, cluster)
	if err != nil {
		return nil, err
	}
	chosen := file.Contexts[name]
	if err := checkEndpoints(chosen.Endpoints); err != nil {
		return nil, fmt.Errorf("context %q: %w", name, err)
	}
	if err := checkProxy(chosen.ProxyURL); err != nil {
		return nil, fmt.Errorf("context %q: %w", name, err)
	}
	certificate, err := talosCertificate(chosen, fmt.Sprintf("context %q", name))
	if err != nil {
		return nil, fmt.Errorf("context %q: %w", name, err)
	}
	return &Talosconfig{Context: chosen, Name: name, Certificate: certificate, several: len(file.Contexts) > 1}, nil
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
		if thisMachine(endpoint) {
			return fmt.Errorf("endpoint %q is not reachable from a hub: list addresses of control planes", endpoint)
		}
		if strings.ContainsAny(endpoint, ",/ ") {
			return fmt.Errorf("endpoint %q must be HOST or HOST:PORT", endpoint)
		}
	}
	return nil
}

func thisMachine(endpoint string) bool {
	host := endpoint
	if h, _, err := net.SplitHostPort(endpoint); err == nil {
		host = h
	}
	if host == "" || strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	addr = addr.Unmap()
	return err == nil && (addr == netip.MustParseAddr("127.0.0.1") || addr == netip.IPv6Loopback() || addr.IsUnspecified())
}

func talosCertificate(c *clientconfig.Context, owner string) (*Certificate, error) {
	var decoded [3][]byte
	for i, field := range []struct{ name, text string }{{"ca", c.CA}, {"crt", c.Crt}, {"key", c.Key}} {
		if field.text == "" {
			return nil, fmt.Errorf("%s is empty; ca, crt and key are needed: the hub authenticates by certificate", field.name)
		}
		data, err := base64.StdEncoding.DecodeString(field.text)
		if err != nil {
			return nil, fmt.Errorf("%s is not base64: %w", field.name, err)
		}
		decoded[i] = data
	}
	ca, crt, key := decoded[0], decoded[1], decoded[2]
	if err := checkAuthorities(ca); err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	certificate, err := parseCertificate(owner, crt, key, ca)
	if err != nil {
		return nil, fmt.Errorf("crt: %w", err)
	}
	return certificate, nil
}

// Check says why the talosconfig cannot be used at a time; nil if it can. Nothing less than os:admin may read the boot ID or upgrade.
func (t *Talosconfig) Check(now time.Time) *Problem {
	if problem := t.Certificate.check(now, v1alpha1.TalosconfigExpiredReason); problem != nil {
		return problem
	}
	roles := t.Certificate.Organizations
	switch {
	case slices.Contains(roles, string(role.Admin)):
		return nil
	case len(roles) == 0:
		return &Problem{v1alpha1.TalosconfigRoleTooLowReason, fmt.Sprintf("the client certificate of context %q has no role; the hub needs %s", t.Name, role.Admin)}
	}
	return &Problem{v1alpha1.TalosconfigRoleTooLowReason, fmt.Sprintf(
		"the client certificate of context %q has the role %s; the hub needs %s", t.Name, strings.Join(roles, ", "), role.Admin)}
}

// Warning says what will keep the talosconfig from being used soon; nil if nothing does.
func (t *Talosconfig) Warning(now time.Time) *Problem { return t.Certificate.warning(now) }

// Several says whether the file has other contexts than the chosen one.
func (t *Talosconfig) Several() bool { return t.several }

// Minify writes a talosconfig with nothing but the context that was chosen: credentials of other clusters stay where they are.
func (t *Talosconfig) Minify() ([]byte, error) {
	file := clientconfig.Config{Context: t.Name, Contexts: map[string]*clientconfig.Context{t.Name: t.Context}}
	data, err := file.Bytes()
	if err != nil {
		return nil, fmt.Errorf("leaving other contexts out of the talosconfig: %w", err)
	}
	return data, nil
}
