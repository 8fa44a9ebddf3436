// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"context"
	"reflect"
	"strconv"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	cosiserver "github.com/cosi-project/runtime/pkg/state/protobuf/server"
)

// resources is the resource state of one boot of a node.
type resources struct {
	core      state.CoreState
	server    cosiv1alpha1.StateServer
	published map[key]resource.Resource
}

// key names a resource.
type key struct {
	namespace resource.Namespace
	typ       resource.Type
	id        resource.ID
}

func keyOf(res resource.Resource) key {
	md := res.Metadata()
	return key{namespace: md.Namespace(), typ: md.Type(), id: md.ID()}
}

func newResources(types *edition) *resources {
	build := inmem.NewStateWithOptions(inmem.WithHistoryInitialCapacity(4), inmem.WithHistoryMaxCapacity(256), inmem.WithHistoryGap(2))
	core := namespaced.NewState(func(ns resource.Namespace) state.CoreState {
		if ns == meta.NamespaceName {
			return types.state
		}
		return build(ns)
	})
	return &resources{
		core:      core,
		server:    cosiserver.NewState(state.WrapCore(state.Filter(core, access))),
		published: map[key]resource.Resource{},
	}
}

// publish makes the state hold exactly these resources. Unchanged ones are left alone, so that watchers hear of changes only.
func (r *resources) publish(list []resource.Resource) {
	ctx := context.Background() // In memory: nothing here waits.
	now := make(map[key]resource.Resource, len(list))
	for _, res := range list {
		k := keyOf(res)
		if now[k] = res; r.published[k] != res {
			r.put(ctx, res)
		}
	}
	for k := range r.published {
		if now[k] == nil {
			_ = r.core.Destroy(ctx, resource.NewMetadata(k.namespace, k.typ, k.id, resource.VersionUndefined))
		}
	}
	r.published = now
}

// put creates or updates one resource. The node is the only writer, so neither can conflict. A resource that comes with a version has
// at least that afterwards.
func (r *resources) put(ctx context.Context, res resource.Resource) {
	wanted := res.Metadata().Version()
	for {
		old, err := r.core.Get(ctx, res.Metadata())
		if err != nil {
			if r.core.Create(ctx, res) != nil {
				return
			}
			continue
		}
		reached := old.Metadata().Version().Value() >= wanted.Value()
		if reached && reflect.DeepEqual(old.Spec(), res.Spec()) {
			return
		}
		res.Metadata().SetVersion(old.Metadata().Version())
		if r.core.Update(ctx, res) != nil {
			return
		}
	}
}

// versioned gives a resource a version that others refer to.
func versioned(res resource.Resource, version int) resource.Resource {
	if parsed, err := resource.ParseVersion(strconv.Itoa(version)); err == nil {
		res.Metadata().SetVersion(parsed)
	}
	return res
}
