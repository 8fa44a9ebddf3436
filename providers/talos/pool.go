// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"fmt"
	"sync"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"k8s.io/apimachinery/pkg/types"

	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/target"
)

// readOnly lists the methods that change nothing. Every other method needs a guard, so a method that is forgotten here is
// refused rather than let through.
var readOnly = map[string]bool{
	machineapi.MachineService_Version_FullMethodName:        true,
	machineapi.MachineService_Read_FullMethodName:           true,
	machineapi.MachineService_List_FullMethodName:           true,
	machineapi.MachineService_EtcdStatus_FullMethodName:     true,
	machineapi.MachineService_EtcdMemberList_FullMethodName: true,
	machineapi.MachineService_EtcdAlarmList_FullMethodName:  true,
	machineapi.MachineService_EtcdSnapshot_FullMethodName:   true,
	machineapi.MachineService_ServiceList_FullMethodName:    true,
	"/cosi.resource.State/Get":                              true,
	"/cosi.resource.State/List":                             true,
	"/cosi.resource.State/Watch":                            true,
}

// Pool is the Provider that reaches real machines: one connection per target, opened when first needed and opened anew when the
// credentials change.
type Pool struct {
	credentials *credentials.Store

	mu    sync.Mutex
	conns map[types.NamespacedName]*pooled
}

// pooled is the connection of a target with one version of its credentials.
type pooled struct {
	version string
	client  *client.Client
	calls   *calls
}

// NewPool returns a Pool that takes its credentials from the store.
func NewPool(store *credentials.Store) *Pool {
	return &Pool{credentials: store, conns: map[types.NamespacedName]*pooled{}}
}

// Reader implements Provider.
func (p *Pool) Reader(ctx context.Context, t target.Target) (Reader, error) {
	c, err := p.connect(ctx, t)
	if err != nil {
		return nil, err
	}
	return &connection{client: c}, nil
}

// Writer implements Provider.
func (p *Pool) Writer(ctx context.Context, t target.Target, g guard.Func) (Writer, error) {
	c, err := p.connect(ctx, t)
	if err != nil {
		return nil, err
	}
	return &connection{client: c, guard: g}, nil
}

// Forget closes the connection to a target that the hub no longer manages.
func (p *Pool) Forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(key)
}

func (p *Pool) connect(ctx context.Context, t target.Target) (*client.Client, error) {
	version, err := p.credentials.TalosconfigVersion(ctx, t)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if have, ok := p.conns[t.NamespacedName]; ok && have.version == version {
		return have.client, nil
	}
	config, err := p.credentials.Talosconfig(ctx, t)
	if err != nil {
		return nil, err
	}
	opened, err := open(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the Talos API of %s: %w", t, err)
	}
	p.drop(t.NamespacedName)
	p.conns[t.NamespacedName] = opened
	return opened.client, nil
}

// drop lets calls that are under way come to their end: an installer whose stream is cut is one of which nobody knows what it did.
func (p *Pool) drop(key types.NamespacedName) {
	if have, ok := p.conns[key]; ok {
		have.calls.endWith(func() { have.client.Close() }) //nolint:errcheck // Nothing is lost with a connection.
		delete(p.conns, key)
	}
}

// readBuffer is the size of the buffer that every connection to a machine keeps for what it reads. A target has as many connections as
// control planes, answers are small, and gRPC's own 32 KiB would be most of what a target costs.
const readBuffer = 4 << 10

// open prepares a connection; gRPC dials when the first call is made, and again for as long as the client lives. Attempts come
// close together: a machine that comes back from a reboot must not wait for a back-off that grew meanwhile.
func open(config *credentials.Talosconfig) (*pooled, error) {
	chosen, way, err := wayTo(config.Context)
	if err != nil {
		return nil, err
	}
	opened := &pooled{version: config.Version, calls: &calls{}}
	opened.client, err = client.New(context.Background(), client.WithConfigContext(chosen), client.WithGRPCDialOptions(append(way, //nolint:contextcheck // It outlives the call.
		grpc.WithReadBufferSize(readBuffer),
		grpc.WithChainUnaryInterceptor(guardUnary, opened.calls.unary),
		grpc.WithChainStreamInterceptor(guardStream, opened.calls.stream),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: dialTimeout / 30, Multiplier: 1.6, Jitter: 0.2, MaxDelay: dialTimeout / 6},
			MinConnectTimeout: dialTimeout,
		}),
	)...))
	return opened, err
}

// Open reads the machines behind the endpoints of a talosconfig that is in no Secret yet, until it is closed.
func Open(config *credentials.Talosconfig) (Reader, func(), error) {
	opened, err := open(config)
	if err != nil {
		return nil, nil, err
	}
	return &connection{client: opened.client}, func() { opened.client.Close() }, nil //nolint:errcheck // Nothing is lost with a connection.
}

func guardUnary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if !readOnly[method] {
		if err := guard.Check(ctx, method); err != nil {
			return err
		}
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

func guardStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if !readOnly[method] {
		if err := guard.Check(ctx, method); err != nil {
			return nil, err
		}
	}
	return open(ctx, desc, cc, method, opts...)
}
