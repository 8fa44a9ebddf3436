// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// resource is a kind of object as its names are written, by -o name and by kubectl.
type resource struct {
	kind    string   // As -o name prints it.
	aliases []string // That are understood, too.
}

const apiGroup = ".ichor.maesh.dev"

var (
	clusterResource   = resource{"taloscluster" + apiGroup, []string{"taloscluster", "talosclusters", "talosclusters" + apiGroup, "cluster", "clusters"}}
	machineResource   = resource{"talosmachine" + apiGroup, []string{"talosmachine", "talosmachines", "talosmachines" + apiGroup, "machine", "machines"}}
	snapshotResource  = resource{"etcdsnapshot" + apiGroup, []string{"etcdsnapshot", "etcdsnapshots", "etcdsnapshots" + apiGroup, "snapshot", "snapshots"}}
	operationResource = resource{"talosoperation" + apiGroup, []string{"talosoperation", "talosoperations", "talosoperations" + apiGroup, "operation", "operations", "op"}}
)

func (r resource) is(kind string) bool { return kind == r.kind || slices.Contains(r.aliases, kind) }

// item is a message as -o name prints it. Commands take that back, also where it is not of the namespace that they look into.
func (a *app) item(message proto.Message, r resource, ref *pb.Reference) item {
	return item{message, r.kind + "/" + a.named(ref)}
}

// parse reads a name: NAME, NAMESPACE/NAME, KIND/NAME or KIND/NAMESPACE/NAME. What comes first of two is a kind if it is one.
func (r resource) parse(text, namespace string) (*pb.Reference, error) {
	parts := strings.Split(text, "/")
	if slices.Contains(parts, "") || len(parts) > 3 {
		return nil, usageError("%q is no name: NAME, NAMESPACE/NAME or %s/NAME", text, r.kind)
	}
	if len(parts) > 1 {
		switch kind := parts[0]; {
		case r.is(kind):
			parts = parts[1:]
		case len(parts) == 3, isKind(kind):
			return nil, usageError("%q is not a %s", text, r.kind)
		}
	}
	if len(parts) == 2 {
		namespace, parts = parts[0], parts[1:]
	}
	return ref(namespace, parts[0]), nil
}

// isKind says whether a word is a kind of ours with its group, or one that no namespace is named like.
func isKind(word string) bool {
	return slices.ContainsFunc([]resource{clusterResource, machineResource, operationResource, snapshotResource}, func(r resource) bool {
		return r.is(word) && strings.HasPrefix(word, "talos")
	})
}

// clusterRef is the cluster that --cluster names, or the context remembers.
func (a *app) clusterRef() (*pb.Reference, error) {
	if a.cluster == "" {
		return nil, usageError("--cluster is needed; list clusters with: ichor cluster list")
	}
	return clusterResource.parse(a.cluster, a.namespace)
}

// scope is what a list is about: namespaces, and clusters.
func (a *app) scope(all bool) (namespaces []string, clusters []*pb.Reference, err error) {
	if !all {
		namespaces = []string{a.namespace}
	}
	if a.cluster == "" || all && !a.clusterSet {
		return namespaces, nil, nil
	}
	if all {
		return nil, nil, usageError("--cluster names a cluster of one namespace, so it does not go with --all-namespaces")
	}
	cluster, err := a.clusterRef()
	if err != nil {
		return nil, nil, err
	}
	return []string{cluster.GetNamespace()}, []*pb.Reference{cluster}, nil
}

// machine finds a machine by the name of its TalosMachine or of its Node.
func (a *app) machine(ctx context.Context, text string) (*pb.Machine, error) {
	wanted, err := machineResource.parse(text, a.namespace)
	if err != nil {
		return nil, err
	}
	request := &pb.ListMachinesRequest{Namespaces: []string{wanted.GetNamespace()}, Text: wanted.GetName()}
	if a.cluster != "" {
		cluster, err := a.clusterRef()
		if err != nil {
			return nil, err
		}
		request.Clusters = []*pb.Reference{cluster}
	}
	list, err := a.listMachines(ctx, request)
	if err != nil {
		return nil, err
	}
	return oneMachine(list.GetMachines(), text, wanted.GetName())
}

// oneMachine is the machine that a name means: its own is better than its node's, which other clusters may have, too.
func oneMachine(machines []*pb.Machine, text, name string) (*pb.Machine, error) {
	var found []*pb.Machine
	for _, machine := range machines {
		if machine.GetRef().GetName() == name {
			return machine, nil
		}
		if strings.EqualFold(machine.GetNode(), name) {
			found = append(found, machine)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, fmt.Errorf("there is no machine %q; list them with: ichor machine list", text)
	}
	var names []string
	for _, machine := range found {
		names = append(names, machine.GetRef().GetName())
	}
	return nil, fmt.Errorf("machine %q is one of %s: name the cluster with --cluster, or use a full name", text, strings.Join(names, ", "))
}

// named is a name for people: with its namespace where that is not the one that commands look into.
func (a *app) named(ref *pb.Reference) string {
	if ref.GetNamespace() == a.namespace {
		return ref.GetName()
	}
	return ref.GetNamespace() + "/" + ref.GetName()
}
