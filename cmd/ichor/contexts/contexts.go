// SPDX-License-Identifier: Apache-2.0

// Package contexts keeps what a user works with, hubs for the most part, and how they are signed in to each, in one file that nobody else
// can read.
package contexts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"sigs.k8s.io/yaml"

	"ichor.maesh.dev/hub/hub/standalone/atomicfile"
)

// fileMode is that of the file: it holds credentials.
const fileMode fs.FileMode = 0o600

// File is what the file says.
type File struct {
	// Current is the name of the context that is used where none is named.
	Current string `json:"current,omitempty"`

	Contexts []*Context `json:"contexts,omitempty"`
}

// Context is a hub, or a management API that no hub serves, and what a user does there by default.
type Context struct {
	Name string `json:"name"`

	// Hub is the URL of a hub.
	Hub string `json:"hub,omitempty"`

	// CertificateAuthority are the certificates, as PEM, that vouch for the hub; empty means those of the system.
	CertificateAuthority string `json:"certificateAuthority,omitempty"`

	// Fingerprint is the SHA-256 of the hub's own certificate, where that is what the user trusts.
	Fingerprint string `json:"fingerprint,omitempty"`

	// Kubeconfig is the file that leads to a management API, where there is no Hub, and KubeContext its context.
	Kubeconfig  string `json:"kubeconfig,omitempty"`
	KubeContext string `json:"kubeContext,omitempty"`

	// Namespace and Cluster are used where none are named.
	Namespace string `json:"namespace,omitempty"`
	Cluster   string `json:"cluster,omitempty"`

	// Credentials are nil for who is not signed in.
	Credentials *Credentials `json:"credentials,omitempty"`
}

// Credentials are how a user is signed in to a hub.
type Credentials struct {
	// Method is token, link or oidc.
	Method string `json:"method"`

	// User is who they are, as the hub said when they signed in.
	User string `json:"user,omitempty"`

	// Token is sent with every call; TokenFile is read for every command instead, since others renew it.
	Token     string `json:"token,omitempty"`
	TokenFile string `json:"tokenFile,omitempty"`

	// Expires is when the token ends; nil if that is not known.
	Expires *time.Time `json:"expires,omitempty"`

	// RefreshToken gets another token from the identity provider, which knows this program as ClientID.
	RefreshToken string   `json:"refreshToken,omitempty"`
	Issuer       string   `json:"issuer,omitempty"`
	ClientID     string   `json:"clientID,omitempty"`
	Scopes       []string `json:"scopes,omitempty"`
}

// Path is where the file is: $ICHOR_CONFIG, or config.yaml in the user's directory for configuration.
func Path(getenv func(string) string) (string, error) {
	if path := getenv("ICHOR_CONFIG"); path != "" {
		return path, nil
	}
	if dir := getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "ichor", "config.yaml"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding the file of contexts: %w; set $ICHOR_CONFIG", err)
	}
	return filepath.Join(home, ".config", "ichor", "config.yaml"), nil
}

// Load reads the file. One that does not exist is empty. Where others could read it, they no longer can, and mended says so.
func Load(path string) (file *File, mended string, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &File{}, "", nil
	case err != nil:
		return nil, "", fmt.Errorf("reading contexts: %w", err)
	case info.Mode().Perm()&^fileMode != 0 && runtime.GOOS != "windows": // There, the bits say nothing.
		if err := os.Chmod(path, fileMode); err != nil {
			return nil, "", fmt.Errorf("%s can be read by others (mode %04o) and holds credentials: %w", path, info.Mode().Perm(), err)
		}
		mended = fmt.Sprintf("%s had mode %04o and holds credentials: its mode is %04o now", path, info.Mode().Perm(), fileMode)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, mended, fmt.Errorf("reading contexts: %w", err)
	}
	file = &File{}
	if err := yaml.UnmarshalStrict(data, file); err != nil {
		return nil, mended, fmt.Errorf("reading contexts from %s: %w", path, err)
	}
	return file, mended, file.check(path)
}

// check refuses what no command writes.
func (f *File) check(path string) error {
	names := map[string]bool{}
	for i, c := range f.Contexts {
		switch {
		case c == nil || c.Name == "":
			return fmt.Errorf("%s: contexts[%d].name is empty", path, i)
		case names[c.Name]:
			return fmt.Errorf("%s: contexts[%d].name %q is there twice", path, i, c.Name)
		}
		names[c.Name] = true
	}
	return nil
}

// Find is the context of a name; nil if there is none.
func (f *File) Find(name string) *Context {
	i := slices.IndexFunc(f.Contexts, func(c *Context) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return f.Contexts[i]
}

// Names are those of all contexts.
func (f *File) Names() []string {
	names := make([]string, 0, len(f.Contexts))
	for _, c := range f.Contexts {
		names = append(names, c.Name)
	}
	return names
}

// Get is the context of a name. Its error says which there are.
func (f *File) Get(name string) (*Context, error) {
	if found := f.Find(name); found != nil {
		return found, nil
	}
	if len(f.Contexts) == 0 {
		return nil, fmt.Errorf("there is no context %q, and no other; sign in with: ichor login URL", name)
	}
	return nil, fmt.Errorf("there is no context %q; there are: %s", name, strings.Join(f.Names(), ", "))
}

// Put adds a context, or replaces the one of its name.
func (f *File) Put(c *Context) {
	if i := slices.IndexFunc(f.Contexts, func(other *Context) bool { return other.Name == c.Name }); i >= 0 {
		f.Contexts[i] = c
		return
	}
	f.Contexts = append(f.Contexts, c)
}

// Delete removes a context, and says whether there was one.
func (f *File) Delete(name string) bool {
	before := len(f.Contexts)
	f.Contexts = slices.DeleteFunc(f.Contexts, func(c *Context) bool { return c.Name == name })
	if f.Current == name {
		f.Current = ""
	}
	return len(f.Contexts) < before
}

// Update changes the file. No other command that does the same comes in between, so a token that one of them renewed is not lost.
func Update(path string, change func(*File) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("making the directory of contexts: %w", err)
	}
	lock := flock.New(path+".lock", flock.SetPermissions(fileMode))
	if err := lock.Lock(); err != nil {
		return fmt.Errorf("locking %s: %w", path, err)
	}
	defer lock.Unlock() //nolint:errcheck // The end of the process does it, too.
	file, _, err := Load(path)
	if err != nil {
		return err
	}
	if err := change(file); err != nil {
		return err
	}
	data, err := yaml.Marshal(file)
	if err != nil {
		return fmt.Errorf("writing contexts: %w", err)
	}
	return atomicfile.Write(followed(path), data)
}

// followed is where a symbolic link leads to: the link stays, since somebody keeps the file elsewhere on purpose.
func followed(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return path
}
