// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/auth"
)

// guarded is the client of one caller: it writes as the caller, and reads as the caller what the informers do not have.
type guarded struct {
	// Client is the caller's own, past the informers.
	client.Client

	informers client.Reader
	reviewer  *reviewer
	caller    auth.Caller
}

// watched names the resource of an object that informers may tell callers of. All others are read from the management API as the caller:
// the hub watches Secrets, and none of them must leave it that way.
func watched(object runtime.Object) (schema.GroupResource, bool) {
	var resource string
	switch object.(type) {
	case *v1alpha1.TalosOperation, *v1alpha1.TalosOperationList:
		resource = "talosoperations"
	case *v1alpha1.TalosCluster, *v1alpha1.TalosClusterList:
		resource = "talosclusters"
	case *v1alpha1.TalosMachine, *v1alpha1.TalosMachineList:
		resource = "talosmachines"
	case *clusterv1.Cluster, *clusterv1.ClusterList:
		return schema.GroupResource{Group: clusterv1.GroupVersion.Group, Resource: "clusters"}, true
	default:
		return schema.GroupResource{}, false
	}
	return schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: resource}, true
}

// Get implements client.Reader. Most rights are those of a whole namespace; only where that one is missing the one object is asked about.
func (g *guarded) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	resource, ok := watched(object)
	if !ok {
		return g.Client.Get(ctx, key, object, opts...)
	}
	what := authorizationv1.ResourceAttributes{Namespace: key.Namespace, Verb: "get", Group: resource.Group, Resource: resource.Resource}
	allowed, err := g.reviewer.may(ctx, g.caller, what)
	if err == nil && !allowed {
		what.Name = key.Name
		allowed, err = g.reviewer.may(ctx, g.caller, what)
	}
	if err := g.refusal(what, allowed, err); err != nil {
		return err
	}
	return g.informers.Get(ctx, key, object, opts...)
}

// List implements client.Reader.
func (g *guarded) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	resource, ok := watched(list)
	if !ok {
		return g.Client.List(ctx, list, opts...)
	}
	asked := (&client.ListOptions{}).ApplyOptions(opts)
	what := authorizationv1.ResourceAttributes{Namespace: asked.Namespace, Verb: "list", Group: resource.Group, Resource: resource.Resource}
	allowed, err := g.reviewer.may(ctx, g.caller, what)
	if err := g.refusal(what, allowed, err); err != nil {
		return err
	}
	return g.informers.List(ctx, list, opts...)
}

// refusal is an error as the management API would have answered.
func (g *guarded) refusal(what authorizationv1.ResourceAttributes, allowed bool, err error) error {
	resource := schema.GroupResource{Group: what.Group, Resource: what.Resource}
	switch {
	case err != nil:
		return fmt.Errorf("asking the management API whether you may %s: %w", words(what), err)
	case !allowed:
		return apierrors.NewForbidden(resource, what.Name, fmt.Errorf("user %.64q may not %s", g.caller.Name, words(what)))
	}
	return nil
}
