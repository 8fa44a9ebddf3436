// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"fmt"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
	genericfilters "k8s.io/apiserver/pkg/endpoints/filters"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/kubernetes"
	aggregator "k8s.io/kube-aggregator/pkg/apiserver"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/controlplane"
	controlplaneserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	"k8s.io/kubernetes/pkg/controlplane/apiserver/options"
	"k8s.io/kubernetes/pkg/generated/openapi"
)

const (
	serverName = "ichor-control-plane"
	// apiServerCount is how many API servers share the data. With more than one, a new CRD waits five seconds
	// for the others before it is established.
	apiServerCount = 1
)

// configs are those of the three servers that make up the API: custom resources, built-in resources and,
// in front of them, the aggregator, which also serves discovery and OpenAPI.
type configs struct {
	extensions *apiextensions.Config
	native     *controlplaneserver.Config
	aggregator *aggregator.Config
}

// serve runs the API server until ctx is done.
func serve(ctx context.Context, cfg Config) error {
	opts, err := newOptions(ctx, cfg)
	if err != nil {
		return err
	}
	c, err := newConfigs(opts)
	if err != nil {
		return err
	}
	server, err := newServer(c)
	if err != nil {
		return err
	}
	if err := addControllers(server.GenericAPIServer, c.native.VersionedInformers); err != nil {
		return err
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return fmt.Errorf("preparing API server: %w", err)
	}
	return prepared.Run(ctx)
}

func newConfigs(opts options.CompletedOptions) (configs, error) {
	schemes := []*runtime.Scheme{legacyscheme.Scheme, apiextensions.Scheme, aggregatorscheme.Scheme}
	generic, informers, storage, err := controlplaneserver.BuildGenericConfig(
		opts, schemes, controlplane.DefaultGenericAPIResourceConfigSource(), openapi.GetOpenAPIDefinitions)
	if err != nil {
		return configs{}, fmt.Errorf("configuring API server: %w", err)
	}
	services := webhook.NewDefaultServiceResolver()
	native, initializers, err := controlplaneserver.CreateConfig(opts, generic, informers, storage, services, nil)
	if err != nil {
		return configs{}, fmt.Errorf("configuring built-in resources: %w", err)
	}
	auth := webhook.NewDefaultAuthenticationInfoResolverWrapper(
		native.ProxyTransport, generic.EgressSelector, generic.LoopbackClientConfig, generic.TracerProvider)
	extensions, err := controlplaneserver.CreateAPIExtensionsConfig(
		*generic, informers, initializers, opts, apiServerCount, services, auth)
	if err != nil {
		return configs{}, fmt.Errorf("configuring custom resources: %w", err)
	}
	front, err := controlplaneserver.CreateAggregatorConfig(
		*generic, opts, informers, services, native.ProxyTransport, native.PeerProxy, initializers)
	if err != nil {
		return configs{}, fmt.Errorf("configuring aggregator: %w", err)
	}
	// It probes Services, of which there are none.
	front.ExtraConfig.DisableRemoteAvailableConditionController = true
	return configs{extensions: extensions, native: native, aggregator: front}, nil
}

// newServer chains the servers: what one does not know, the next is asked for.
func newServer(c configs) (*aggregator.APIAggregator, error) {
	notFound := notfoundhandler.New(c.native.Generic.Serializer, genericfilters.NoMuxAndDiscoveryIncompleteKey)
	extensions, err := c.extensions.Complete().New(genericserver.NewEmptyDelegateWithCustomHandler(notFound))
	if err != nil {
		return nil, fmt.Errorf("creating server of custom resources: %w", err)
	}
	native, err := newNativeServer(c.native, extensions.GenericAPIServer)
	if err != nil {
		return nil, err
	}
	const serveCRDs = true
	front, err := controlplaneserver.CreateAggregatorServer(
		c.aggregator.Complete(), native.GenericAPIServer,
		extensions.Informers.Apiextensions().V1().CustomResourceDefinitions(), serveCRDs,
		controlplaneserver.DefaultGenericAPIServicePriorities())
	if err != nil {
		return nil, fmt.Errorf("creating aggregator: %w", err)
	}
	return front, nil
}

func newNativeServer(c *controlplaneserver.Config, next genericserver.DelegationTarget) (*controlplaneserver.Server, error) {
	completed := c.Complete()
	native, err := completed.New(serverName, next)
	if err != nil {
		return nil, fmt.Errorf("creating server of built-in resources: %w", err)
	}
	client, err := kubernetes.NewForConfig(c.Generic.LoopbackClientConfig)
	if err != nil {
		return nil, fmt.Errorf("creating loopback client: %w", err)
	}
	providers, err := completed.GenericStorageProviders(client.Discovery())
	if err != nil {
		return nil, fmt.Errorf("creating storage of built-in resources: %w", err)
	}
	if err := native.InstallAPIs(providers...); err != nil {
		return nil, fmt.Errorf("installing built-in resources: %w", err)
	}
	return native, nil
}
