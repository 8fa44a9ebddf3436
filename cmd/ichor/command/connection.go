// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"connectrpc.com/connect"
	"k8s.io/client-go/tools/clientcmd"

	"ichor.maesh.dev/hub/cmd/ichor/contexts"
	"ichor.maesh.dev/hub/cmd/ichor/dial"
	"ichor.maesh.dev/hub/hub/local"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
)

// connection is what commands talk to: the same services, in a hub or in this process.
type connection struct {
	operations ichorv1alpha1connect.OperationServiceClient
	clusters   ichorv1alpha1connect.ClusterServiceClient
	hub        ichorv1alpha1connect.HubServiceClient
	audit      ichorv1alpha1connect.AuditServiceClient
	snapshots  ichorv1alpha1connect.SnapshotServiceClient

	// where is what people are told: a hub, or a management API.
	where string

	// context is that of ichor; nil where a kubeconfig was named.
	context *contexts.Context

	// namespace and cluster are used where none are named.
	namespace, cluster string

	// close ends what runs in this process.
	close func() error
}

// choice is what a command line, the environment and the file of contexts say where to work.
type choice struct {
	context     *contexts.Context // Nil: a kubeconfig.
	kubeconfig  string            // Empty: $KUBECONFIG, or the default.
	kubeContext string
}

// choose finds out where to work. See New for the order.
func (a *app) choose() (choice, error) {
	if a.plugin || a.kubeconfig != "" {
		return choice{kubeconfig: a.kubeconfig, kubeContext: a.context}, nil
	}
	file, err := a.contexts()
	if err != nil {
		return choice{}, err
	}
	name := cmp.Or(a.context, a.Getenv("ICHOR_CONTEXT"), file.Current)
	if name == "" {
		return choice{}, nil
	}
	found, err := file.Get(name)
	switch {
	case err == nil && found.Hub != "":
		return choice{context: found}, nil
	case err == nil:
		return choice{context: found, kubeconfig: found.Kubeconfig, kubeContext: found.KubeContext}, nil
	case a.context != "" && slices.Contains(a.kubeContexts(), name):
		return choice{kubeContext: name}, nil
	}
	return choice{}, usageError("%w", err)
}

// contexts reads the file of contexts.
func (a *app) contexts() (*contexts.File, error) {
	path, err := contexts.Path(a.Getenv)
	if err != nil {
		return nil, err
	}
	file, mended, err := contexts.Load(path)
	if mended != "" {
		a.remark("Warning: %s", mended)
	}
	return file, err
}

// kubeContexts are those of the default kubeconfig; none where it cannot be read.
func (a *app) kubeContexts() []string {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.kubeconfig
	config, err := rules.Load()
	if err != nil {
		return nil
	}
	var names []string
	for name := range config.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// connect makes the clients. Nothing is asked yet.
func (a *app) connect() error {
	chosen, err := a.choose()
	if err != nil {
		return err
	}
	if chosen.context != nil && chosen.context.Hub != "" {
		a.connection, err = a.toHub(chosen.context, a.bearer(chosen.context))
	} else {
		a.connection, err = a.inProcess(chosen)
	}
	if err != nil {
		return err
	}
	a.namespace = cmp.Or(a.namespace, a.connection.namespace)
	if !a.clusterSet {
		a.cluster = a.connection.cluster
	}
	return nil
}

// disconnect ends what connect began.
func (a *app) disconnect() {
	if a.connection == nil || a.connection.close == nil {
		return
	}
	if err := a.connection.close(); err != nil {
		a.remark("Warning: closing the connection: %v", err)
	}
}

// toHub speaks with a hub.
func (a *app) toHub(c *contexts.Context, bearer dial.Bearer) (*connection, error) {
	address, err := dial.ParseURL(c.Hub)
	if err != nil {
		return nil, fmt.Errorf("context %s: %w", c.Name, err)
	}
	client, err := dial.Client(dial.Trust{CertificateAuthority: c.CertificateAuthority, Fingerprint: c.Fingerprint}, bearer, a.userAgent())
	if err != nil {
		return nil, fmt.Errorf("context %s: %w", c.Name, err)
	}
	guard := &skewGuard{client: a.Version, hub: ichorv1alpha1connect.NewHubServiceClient(client, address.String())}
	made := connectionOver(client, address.String(), connect.WithInterceptors(guard.interceptor()))
	made.where, made.context = "hub "+address.String(), c
	made.namespace, made.cluster = cmp.Or(c.Namespace, defaultNamespace), c.Cluster
	made.close = func() error { client.CloseIdleConnections(); return nil }
	return made, nil
}

// defaultNamespace is where things are that nobody put elsewhere.
const defaultNamespace = "default"

// inProcess does here what a hub would do, with the rights of a kubeconfig.
func (a *app) inProcess(chosen choice) (*connection, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = chosen.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: chosen.kubeContext})
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the management API: %w; sign in to a hub with: ichor login URL, or set $KUBECONFIG or --kubeconfig", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("finding the namespace: %w", err)
	}
	config.UserAgent = a.userAgent()
	config.QPS, config.Burst = 50, 100
	conn, err := local.Dial(local.Options{Config: config, Version: a.Version, Client: a.userAgent()})
	if err != nil {
		return nil, fmt.Errorf("connecting to the management API at %s: %w", config.Host, err)
	}
	made := connectionOver(conn.HTTPClient(), conn.URL())
	made.where, made.context, made.close = "management API "+config.Host, chosen.context, conn.Close
	made.namespace = namespace
	if c := chosen.context; c != nil {
		made.namespace, made.cluster = cmp.Or(c.Namespace, namespace), c.Cluster
	}
	return made, nil
}

func connectionOver(client *http.Client, url string, options ...connect.ClientOption) *connection {
	return &connection{
		operations: ichorv1alpha1connect.NewOperationServiceClient(client, url, options...),
		clusters:   ichorv1alpha1connect.NewClusterServiceClient(client, url, options...),
		hub:        ichorv1alpha1connect.NewHubServiceClient(client, url, options...),
		audit:      ichorv1alpha1connect.NewAuditServiceClient(client, url, options...),
		snapshots:  ichorv1alpha1connect.NewSnapshotServiceClient(client, url, options...),
	}
}

func (a *app) userAgent() string { return "ichor/" + a.Version }

// call asks once, and says in words why there is no answer.
func call[Req, Res any](
	ctx context.Context, a *app, method func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), request *Req,
) (*Res, error) {
	asking, cancel := a.deadline(ctx)
	defer cancel()
	response, err := method(asking, connect.NewRequest(request))
	switch {
	case err == nil:
		return response.Msg, nil
	case ctx.Err() != nil:
		return nil, &codedError{errors.New("interrupted"), exitInterrupted}
	}
	return nil, a.explain(err)
}

// ref is a reference into the hub that is asked.
func ref(namespace, name string) *pb.Reference {
	return &pb.Reference{Namespace: namespace, Name: name}
}
