// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
)

// set sets a value in a document.
func set(t *testing.T, data []byte, value any, path ...any) []byte {
	t.Helper()
	g := NewWithT(t)
	var document any
	g.Expect(yaml.Unmarshal(data, &document)).To(Succeed())
	at := document
	for i, key := range path {
		last := i == len(path)-1
		switch parent := at.(type) {
		case map[string]any:
			if last {
				parent[key.(string)] = value
			}
			at = parent[key.(string)]
		case []any:
			at = parent[key.(int)]
		}
	}
	changed, err := yaml.Marshal(document)
	g.Expect(err).NotTo(HaveOccurred())
	return changed
}

func get(t *testing.T, data []byte, path ...any) any {
	t.Helper()
	var document any
	NewWithT(t).Expect(yaml.Unmarshal(data, &document)).To(Succeed())
	for _, key := range path {
		switch parent := document.(type) {
		case map[string]any:
			document = parent[key.(string)]
		case []any:
			document = parent[key.(int)]
		}
	}
	return document
}

// Every wrong pair of files is found out on two real clusters, and told in words that say which file it is.
func TestLive(t *testing.T) {
	fleet, err := sim.Start(t.Context(), sim.Options{Dir: t.TempDir(), Speed: 100, Clusters: []sim.ClusterSpec{
		{Name: "one", ControlPlanes: 3, Workers: 1}, {Name: "two", ControlPlanes: 1},
	}})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(fleet.Stop)
	one, two := fleet.Cluster("one"), fleet.Cluster("two")
	otherAuthority := set(t, one.Kubeconfig(), get(t, two.Kubeconfig(), "clusters", 0, "cluster", "certificate-authority-data"),
		"clusters", 0, "cluster", "certificate-authority-data")
	otherUser := set(t, one.Kubeconfig(), get(t, two.Kubeconfig(), "users", 0, "user"), "users", 0, "user")
	otherEndpoint := set(t, one.Talosconfig(), []any{two.Node("cp-1").Address()}, "contexts", "one", "endpoints")
	oneOther := set(t, one.Talosconfig(), []any{one.Node("cp-1").Address(), two.Node("cp-1").Address()}, "contexts", "one", "endpoints")
	nowhere := set(t, one.Talosconfig(), []any{"127.255.255.1", "127.255.255.2"}, "contexts", "one", "endpoints")
	oneAway := set(t, one.Talosconfig(), []any{"127.255.255.1", one.Node("cp-2").Address()}, "contexts", "one", "endpoints")
	reader, err := one.TalosconfigFor("os:reader")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	certificate := set(t, one.Talosconfig(), get(t, two.Talosconfig(), "contexts", "two", "crt"), "contexts", "one", "crt")
	certificate = set(t, certificate, get(t, two.Talosconfig(), "contexts", "two", "key"), "contexts", "one", "key")

	for name, row := range map[string]struct {
		kubeconfig, talosconfig []byte
		err                     string
	}{
		"both of one":         {kubeconfig: one.Kubeconfig(), talosconfig: one.Talosconfig()},
		"both of the other":   {kubeconfig: two.Kubeconfig(), talosconfig: two.Talosconfig()},
		"an endpoint is away": {kubeconfig: one.Kubeconfig(), talosconfig: oneAway},
		"of different clusters": {
			kubeconfig: one.Kubeconfig(), talosconfig: two.Talosconfig(),
			err: "the kubeconfig and the talosconfig are of different clusters: no Node is the machine at " + two.Node("cp-1").Address() + " (cp-1)",
		},
		"another CA": {
			kubeconfig: otherAuthority, talosconfig: one.Talosconfig(),
			err: "kubeconfig: " + one.Endpoint() + " does not open the Kubernetes API: the certificate of the server is not signed by the CA of the file",
		},
		"another user": {
			kubeconfig: otherUser, talosconfig: one.Talosconfig(), err: "kubeconfig: " + one.Endpoint() + " does not open the Kubernetes API: ",
		},
		"endpoints of the other cluster": {
			kubeconfig: one.Kubeconfig(), talosconfig: otherEndpoint,
			err: "talosconfig: endpoint " + two.Node("cp-1").Address() + " does not open: the certificate of the server is not signed by the CA of the file",
		},
		"one endpoint of the other cluster": {
			kubeconfig: one.Kubeconfig(), talosconfig: oneOther, err: "talosconfig: endpoint " + two.Node("cp-1").Address() + " does not open: ",
		},
		"a certificate of the other cluster (A12)": {
			kubeconfig: one.Kubeconfig(), talosconfig: certificate, err: "does not open: the server does not accept the client certificate",
		},
		"endpoints that nobody has": {
			kubeconfig: one.Kubeconfig(), talosconfig: nowhere,
			err: "talosconfig: no endpoint opens the Talos API: 127.255.255.1: no answer; 127.255.255.2: no answer",
		},
		"a reader": {kubeconfig: one.Kubeconfig(), talosconfig: reader, err: "talosconfig: no endpoint opens the Talos API: "},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			kubeconfig, err := credentials.ParseKubeconfig(row.kubeconfig, credentials.KubeconfigOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			talosconfig, err := credentials.ParseTalosconfig(row.talosconfig, "", "one")
			g.Expect(err).NotTo(HaveOccurred())
			_, err = Live(t.Context(), kubeconfig, talosconfig)
			if row.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(row.err)))
			}
		})
	}

	t.Run("the Kubernetes API is away", func(t *testing.T) {
		g := NewWithT(t)
		_, err := fleet.Inject(fault.Fault{Name: fault.Unreachable, Cluster: "two", Params: map[string]string{fault.ParamAPI: "kube"}})
		g.Expect(err).NotTo(HaveOccurred())
		kubeconfig, err := credentials.ParseKubeconfig(two.Kubeconfig(), credentials.KubeconfigOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		talosconfig, err := credentials.ParseTalosconfig(two.Talosconfig(), "", "two")
		g.Expect(err).NotTo(HaveOccurred())
		_, err = Live(t.Context(), kubeconfig, talosconfig)
		g.Expect(err).To(MatchError("kubeconfig: " + two.Endpoint() + " does not open the Kubernetes API: no answer"))
	})
}

// Case A17: a cluster in which nobody knows of a control plane is none. Names that two clusters share prove nothing.
func TestCaseA17Judge(t *testing.T) {
	node := kube.Node{Name: "cp-1", UUID: "ABCD", BootID: "b1", ControlPlane: true}
	machine := talos.Machine{NodeName: "cp-1", UUID: "abcd", BootID: "b1"}
	member := []talos.Member{{Hostname: "cp-1", ControlPlane: true}}
	for name, row := range map[string]struct {
		nodes []kube.Node
		views []view
		err   string
	}{
		"all is well":              {[]kube.Node{node}, []view{{machine: machine, members: member}}, ""},
		"discovery is off":         {[]kube.Node{node}, []view{{machine: machine}}, ""},
		"the same hardware":        {[]kube.Node{{UUID: "ABCD"}}, []view{{machine: machine, members: member}}, ""},
		"the same boot":            {[]kube.Node{{BootID: "b1"}}, []view{{machine: machine, members: member}}, ""},
		"nobody":                   {nil, []view{{endpoint: "10.0.0.1"}}, "neither the Nodes nor Talos' discovery tell of a control plane"},
		"workers alone":            {[]kube.Node{{Name: "w-1", UUID: "ABCD"}}, []view{{machine: machine, members: []talos.Member{{Hostname: "w-1"}}}}, "neither the Nodes nor"},
		"the same name":            {[]kube.Node{{Name: "cp-1", UUID: "x", BootID: "y", ControlPlane: true}}, []view{{endpoint: "10.0.0.1", machine: machine}}, "no Node is the machine at 10.0.0.1 (cp-1)"},
		"nothing that could match": {[]kube.Node{{Name: "cp-1", ControlPlane: true}}, []view{{endpoint: "10.0.0.1", machine: talos.Machine{NodeName: "cp-1"}}}, "no Node is the machine"},
		"no Nodes":                 {nil, []view{{endpoint: "10.0.0.1", machine: machine, members: member}}, "no Node is the machine"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			err := judge(row.nodes, row.views)
			if row.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(row.err)))
		})
	}
}
