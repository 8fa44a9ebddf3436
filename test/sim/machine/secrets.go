// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"k8s.io/utils/clock"

	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/secrets"
)

// certification is what a machine has made of the certificates and keys in its config.
type certification struct {
	config config.Provider // The one that roots were read from.
	roots  *secrets.Roots
	from   *secrets.Roots // What files are made from.
	// files is nil until somebody asks for a file, or the config asks for other ones: most simulated machines never need theirs.
	files   *secrets.Files
	base    *secrets.Files       // What has outlasted the reboot that files are to be made after.
	version int                  // Of the secrets that the static pods are to be made from.
	changed map[string]time.Time // When files were written; those that are not in it were when the machine booted.
	booting bool                 // The next writing is that of a boot.
	partial bool                 // Some files were ordered to stay as they were.
	late    clock.Timer          // Writes files that were ordered to be late; nil for none.
	pending *secrets.Files       // What it writes.

	api     *secrets.API     // Nil while the Talos API has no certificate.
	apiFrom *secrets.Roots   // What it is made from.
	asked   []*secrets.Roots // Whom a worker has asked last, and for what; asking the same ones again in vain is no use.
	trouble string           // Why there is no newer one; empty when there is nothing to complain of.

	admitted map[[2]*secrets.Files]bool // What Admitted has found out about files of this machine and of a control plane.
}

// Files are what Talos has written for the components on this machine.
func (m *Machine) Files() *secrets.Files {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.written()
}

// FileChanged says when a file was written.
func (m *Machine) FileChanged(path string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at, ok := m.secrets.changed[path]; ok {
		return at
	}
	return m.starts.System
}

// Serving are the files that the API server of a control plane works with: those that it reads again when they change, which are
// certificates and CAs, and those as they were when it started, which are keys.
func (m *Machine) Serving() (now, atStart *secrets.Files) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now = m.written()
	if len(m.staticPods) > 0 && m.staticPods[0].pod != nil && m.staticPods[0].pod.loaded != nil {
		return now, m.staticPods[0].pod.loaded
	}
	return now, now
}

// SecretsVersion is that of the secrets from which static pods are made.
func (m *Machine) SecretsVersion() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.secrets.version
}

// API are the certificates of the machine's Talos API, or nil while it has none, and why it has no newer ones.
func (m *Machine) API() (api *secrets.API, trouble string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.secrets.api, m.secrets.trouble
}

// Roots are what the certificates of the Talos API and the files are made from.
func (m *Machine) Roots() (api, files *secrets.Roots) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.secrets.apiFrom, m.secrets.from
}

// Certify brings certificates and keys in line with the config in force, where they are not: another machine or the end of a fault may
// have made possible what was not before.
func (m *Machine) Certify() {
	if m.certify() {
		m.fit()
		m.notify()
	}
}

// certify does the work of Certify and says whether anything has changed.
func (m *Machine) certify() bool {
	m.certifying.Lock()
	defer m.certifying.Unlock()
	active, _ := m.Config()
	if active == nil || m.Wiped() {
		return false
	}
	roots, err := m.read(active)
	if err != nil {
		m.complain(err)
		return false
	}
	issued := m.certifyAPI(roots)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.write(roots) || issued
}

// read is what a config says about certificates and keys. The last one is read once.
func (m *Machine) read(c config.Provider) (*secrets.Roots, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.secrets.config == c {
		return m.secrets.roots, nil
	}
	roots, err := m.env.Configs.roots(m.Identity, c)
	if err == nil {
		m.secrets.config, m.secrets.roots = c, roots
	}
	return roots, err
}

// certifyAPI gives the Talos API other certificates if the config asks for them. What goes wrong leaves the old ones in use.
func (m *Machine) certifyAPI(roots *secrets.Roots) bool {
	trustd := m.trustd()
	m.mu.Lock()
	old, from := m.secrets.api, m.secrets.apiFrom
	inVain := m.secrets.trouble != "" && slices.Equal(m.secrets.asked, append(trustd, roots))
	m.mu.Unlock()
	if inVain || old != nil && (from.SameOS(roots) || m.stale("talos", "")) {
		return false
	}
	api, err := secrets.RenderAPI(roots, m.secretsNode(), trustd, old)
	m.mu.Lock()
	m.secrets.asked = slices.Concat(trustd, []*secrets.Roots{roots})
	m.mu.Unlock()
	if err != nil {
		m.complain(err)
		return false
	}
	m.mu.Lock()
	m.secrets.api, m.secrets.apiFrom, m.secrets.trouble = api, roots, ""
	m.mu.Unlock()
	if old != nil {
		m.record("certificate", "talos "+api.Server.Leaf.SerialNumber.Text(16))
	}
	return true
}

// complain notes what keeps certificates or files from following the config, and tells the journal when it is news.
func (m *Machine) complain(err error) {
	m.mu.Lock()
	news := m.secrets.trouble != err.Error()
	m.secrets.trouble = err.Error()
	m.mu.Unlock()
	if news && !errors.Is(err, secrets.ErrNoTrustd) { // Waiting for the first control plane is no failure.
		m.record("certificate-failed", err.Error())
	}
}

// trustd are the control planes that a worker can ask for a certificate.
func (m *Machine) trustd() []*secrets.Roots {
	if m.ControlPlane {
		return nil
	}
	var list []*secrets.Roots
	for _, p := range m.controlPlanes() {
		if roots, _ := p.Roots(); roots != nil && p.State().APIUp && !p.Wiped() {
			list = append(list, roots)
		}
	}
	return list
}

// controlPlanes are the cluster's.
func (m *Machine) controlPlanes() []*Machine {
	if m.env.ControlPlanes == nil {
		return nil
	}
	return m.env.ControlPlanes()
}

func (m *Machine) secretsNode() secrets.Node {
	node := secrets.Node{Name: m.Name, Addresses: m.Addresses(), ControlPlane: m.ControlPlane}
	if m.ControlPlane {
		node.Shared = m.env.Shared
	}
	return node
}

// stale says whether it was ordered that something stays as it is: the certificates of the Talos API, all files, or one.
func (m *Machine) stale(api, path string) bool {
	for _, f := range m.env.Faults.Standing(fault.SecretsStale, m.Site()) {
		if which := f.Params[fault.ParamAPI]; which != api && which != "both" {
			continue
		}
		if pattern := f.Params[fault.ParamPath]; pattern == "*" || path != "" && fault.Matches(pattern, path) {
			return true
		}
	}
	return false
}

// write makes the files that the config asks for and says whether any has changed. The caller holds the lock.
func (m *Machine) write(roots *secrets.Roots) bool {
	s := &m.secrets
	if s.from == nil {
		s.from, s.version, s.booting = roots, m.firstVersion(), false
		return false
	}
	if s.from.SameFiles(roots) && !s.partial {
		s.booting = false
		return false
	}
	if !s.booting && m.stale("kube", "") {
		return false
	}
	m.writeLate()
	old := m.before()
	files, err := secrets.RenderFrom(roots, m.secretsNode(), old)
	if err != nil {
		m.record("certificate-failed", err.Error()) // What is there stays.
		return false
	}
	s.from, s.version = roots, files.Version
	m.put(old, m.keepStale(old, files))
	s.booting = false
	return true
}

// before are the files that others are made from: those of before, or after a reboot what is left of them.
func (m *Machine) before() *secrets.Files {
	s := &m.secrets
	if !s.booting {
		return m.written()
	}
	if s.base == nil {
		s.base = m.written().Rebooted()
	}
	return s.base
}

// keepStale keeps the files as they were that are ordered to stay so.
func (m *Machine) keepStale(old, files *secrets.Files) *secrets.Files {
	m.secrets.partial = false
	if m.secrets.booting {
		return files
	}
	kept := files.Keep(old, func(path string) bool { return m.stale("kube", path) })
	m.secrets.partial = len(kept.Changed(files)) > 0
	return kept
}

// put puts files in place, those of the static pods later if that is ordered.
func (m *Machine) put(old, files *secrets.Files) {
	late, ordered := fault.Fault{}, false
	if !m.secrets.booting && m.ControlPlane {
		late, ordered = m.env.Faults.Fire(fault.SecretsLate, m.Site())
	}
	if !ordered {
		m.adopt(files)
		return
	}
	m.adopt(files.Keep(old, ofStaticPods))
	delay, err := time.ParseDuration(late.Params[fault.ParamDelay])
	if err != nil {
		delay = time.Second
	}
	m.secrets.pending = files
	m.secrets.late = m.env.Clock.AfterFunc(delay, func() {
		m.mu.Lock()
		m.writeLate()
		m.mu.Unlock()
		m.notify()
	})
}

func ofStaticPods(path string) bool {
	return strings.HasPrefix(path, constants.KubebernetesStaticSecretsDir+"/")
}

// writeLate writes what is late, if anything is. The caller holds the lock.
func (m *Machine) writeLate() {
	s := &m.secrets
	if s.late == nil {
		return
	}
	s.late.Stop()
	files := s.pending
	s.late, s.pending = nil, nil
	m.adopt(files.Keep(s.files, func(path string) bool { return !ofStaticPods(path) }))
}

// adopt makes files those of the machine. The caller holds the lock.
func (m *Machine) adopt(files *secrets.Files) {
	s := &m.secrets
	changed := maps.Clone(s.changed)
	if changed == nil {
		changed = map[string]time.Time{}
	}
	for _, path := range files.Changed(s.files) {
		changed[path] = m.env.Clock.Now()
	}
	s.files, s.changed = files, changed
	s.admitted = nil
}

// firstVersion is the version of the secrets after a boot.
func (m *Machine) firstVersion() int {
	if m.ControlPlane {
		return 1
	}
	return 0
}

// written returns the files, which it makes now if nobody has asked for them yet. The caller holds the lock.
func (m *Machine) written() *secrets.Files {
	s := &m.secrets
	if s.files != nil || s.from == nil {
		return s.files
	}
	files, err := secrets.RenderFrom(s.from, m.secretsNode(), s.base)
	if err != nil {
		m.record("certificate-failed", err.Error())
		return nil
	}
	if s.base == nil {
		files = m.enrolledBefore(files)
	}
	s.files = files
	for _, p := range m.staticPods {
		if p.pod != nil && p.pod.loaded == nil {
			p.pod.loaded = files
		}
	}
	return files
}

// enrolledBefore gives the kubelet the client certificate that it has from the time before the simulation.
func (m *Machine) enrolledBefore(files *secrets.Files) *secrets.Files {
	signers := []func() *secrets.Files{func() *secrets.Files { return files }}
	if !m.ControlPlane {
		signers = []func() *secrets.Files{m.env.Configs.signer}
		for _, p := range m.controlPlanes() {
			signers = append(signers, p.Files) // No control plane asks a worker while it holds its own lock.
		}
	}
	for _, signer := range signers {
		if enrolled, err := files.BootstrapKubelet(m.secretsNode(), signer()); err == nil {
			return enrolled
		}
	}
	return files
}

// rebootSecrets forgets what was in memory. The caller holds the lock.
func (m *Machine) rebootSecrets() {
	s := &m.secrets
	if s.late != nil {
		s.late.Stop()
	}
	if s.files != nil {
		s.base = s.files.Rebooted()
	}
	*s = certification{config: s.config, roots: s.roots, from: s.from, base: s.base, version: m.firstVersion(), booting: true}
}

// wipeSecrets forgets what is on a disk that is wiped: the kubelet has to ask for another client certificate. The caller holds the lock.
func (m *Machine) wipeSecrets(r Reset) {
	if r.wipesVar() {
		m.secrets.files, m.secrets.base = nil, &secrets.Files{}
	}
}

// errNoServer is why a kubelet gets no certificate while no API server answers.
var errNoServer = errors.New("no API server can be reached")

const reasonEnroll = "ClientCertificate"

// enroll gets the kubelet a client certificate if it has none.
func (m *Machine) enroll() error {
	m.mu.Lock()
	files := m.secrets.files
	if files == nil && m.secrets.base != nil {
		files = m.written()
	}
	m.mu.Unlock()
	if files == nil || files.Enrolled() {
		return nil
	}
	errs := []error{}
	for _, p := range m.controlPlanes() {
		if !p.Serves() && p != m { // A control plane's kubelet runs its API server first, and asks that.
			continue
		}
		enrolled, err := files.BootstrapKubelet(m.secretsNode(), p.Files())
		if err == nil {
			return m.enrolled(files, enrolled, p.Name)
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		errs = append(errs, errNoServer)
	}
	return failure{reason: reasonEnroll, err: errors.Join(errs...)}
}

// enrolled puts a kubelet's new certificate in place, unless the files have become others meanwhile.
func (m *Machine) enrolled(before, files *secrets.Files, by string) error {
	m.mu.Lock()
	same := m.secrets.files == before
	if same {
		m.adopt(files)
	}
	m.mu.Unlock()
	if !same {
		return m.enroll()
	}
	m.record("kubelet-certificate", by)
	return nil
}

// Admitted says whether an API server and the machine's kubelet accept each other's certificates. Without any API server nobody can
// tell.
func (m *Machine) Admitted() bool {
	servers := 0
	for _, p := range m.controlPlanes() {
		if !p.Serves() {
			continue
		}
		servers++
		if m.admittedBy(p) {
			return true
		}
	}
	return servers == 0
}

func (m *Machine) admittedBy(server *Machine) bool {
	if m.Rendered() == nil && server.Rendered() == nil {
		return true // Both are as they were installed.
	}
	theirs, ours := server.Files(), m.Files()
	if theirs == nil || ours == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	pair := [2]*secrets.Files{ours, theirs}
	known, ok := m.secrets.admitted[pair]
	if !ok {
		known = ours.KubeletAccepted(theirs)
		if m.secrets.admitted == nil || len(m.secrets.admitted) > 16 {
			m.secrets.admitted = map[[2]*secrets.Files]bool{}
		}
		m.secrets.admitted[pair] = known
	}
	return known
}

// Rendered are the files if somebody has asked for them yet, or the config has asked for other ones.
func (m *Machine) Rendered() *secrets.Files {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.secrets.files
}

// installation is what the configs of the installation say about certificates and keys, which machines share.
type installation struct {
	controlPlane, worker *secrets.Roots

	once   sync.Once
	signer *secrets.Files
}

// roots is what a config says. Those of the installation are read once for all machines.
func (c Configs) roots(id Identity, of config.Provider) (*secrets.Roots, error) {
	switch {
	case c.installation == nil:
	case id.ControlPlane && of == c.ControlPlane && c.installation.controlPlane != nil:
		return c.installation.controlPlane, nil
	case !id.ControlPlane && of == c.Worker && c.installation.worker != nil:
		return c.installation.worker, nil
	}
	roots, err := secrets.RootsOf(of, id.ControlPlane)
	if err != nil {
		return nil, fmt.Errorf("secrets of the machine config: %w", err)
	}
	return roots, nil
}

// signer are the files of a control plane as it was installed, which has signed the certificates of the first kubelets.
func (c Configs) signer() *secrets.Files {
	if c.installation == nil || c.installation.controlPlane == nil {
		return nil
	}
	c.installation.once.Do(func() {
		node := secrets.Node{Name: "installation", ControlPlane: true}
		c.installation.signer, _ = secrets.RenderFrom(c.installation.controlPlane, node, nil) // Without it nobody is enrolled.
	})
	return c.installation.signer
}

// installed reads what the configs of the installation say about certificates and keys. A config that says nothing is read again
// by each machine, which then complains.
func installed(c Configs) *installation {
	i := &installation{}
	i.controlPlane, _ = secrets.RootsOf(c.ControlPlane, true)
	i.worker, _ = secrets.RootsOf(c.Worker, false)
	return i
}
