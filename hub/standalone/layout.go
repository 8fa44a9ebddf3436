// SPDX-License-Identifier: Apache-2.0

package standalone

import "path/filepath"

// layout names what is in a data directory.
type layout string

func (l layout) dir() string           { return string(l) }
func (l layout) lock() string          { return filepath.Join(string(l), "lock") }
func (l layout) childLock() string     { return filepath.Join(string(l), "apiserver.lock") }
func (l layout) childLog() string      { return filepath.Join(string(l), "apiserver.log") }
func (l layout) port() string          { return filepath.Join(string(l), "port") }
func (l layout) pki() string           { return filepath.Join(string(l), "pki") }
func (l layout) kubeconfig() string    { return filepath.Join(string(l), "kubeconfig") }
func (l layout) hubKubeconfig() string { return filepath.Join(string(l), "hub.kubeconfig") }
func (l layout) url() string           { return filepath.Join(string(l), "url") }
func (l layout) sessionKey() string    { return filepath.Join(string(l), "session.key") }
func (l layout) loginLinks() string    { return filepath.Join(string(l), "login-links") }
