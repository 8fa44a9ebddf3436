// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/hub/verify"
	"ichor.maesh.dev/hub/providers/capi"
	"ichor.maesh.dev/hub/providers/credentials"
)

// defaultHTTPSPort is where an API server is if its URL does not say.
const defaultHTTPSPort = 443

// Import is a target that somebody brings.
type Import struct {
	Name, Namespace string

	// Kubeconfig and Talosconfig are the contents of the files.
	Kubeconfig, Talosconfig []byte

	// KubeContext is the context of the kubeconfig; empty means the current one, else the only one.
	KubeContext string

	// TalosContext is the context of the talosconfig; empty means the one named like the cluster, else the only one.
	TalosContext string

	// AllowInsecure lets a kubeconfig through that has insecure-skip-tls-verify.
	AllowInsecure bool

	// Offline leaves out the look at the target, for one that cannot be reached from here or now.
	Offline bool

	// TakeOver takes the target from another hub, on purpose.
	TakeOver bool

	// Labels are put on the TalosCluster, and on the Cluster where the hub makes it. Others that are there stay.
	Labels map[string]string
}

// Verifier opens a target with credentials that nobody has stored yet, and says what is wrong with them.
type Verifier func(context.Context, *credentials.Kubeconfig, *credentials.Talosconfig) (verify.Found, error)

// Import makes the hub manage a target: two Secrets, a Cluster and a TalosCluster. It writes nothing unless both files are usable and open
// the same cluster, and doing it again brings new credentials or finishes what an earlier attempt left.
func (s *Service) Import(ctx context.Context, in Import) (*v1alpha1.TalosCluster, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	s = s.owning(importManager)
	read, err := s.read(in)
	if err != nil {
		return nil, err
	}
	endpoint, err := endpointOf(read.kubeconfig.Config.Host)
	if err != nil {
		return nil, err
	}
	found, err := s.verify(ctx, in, read)
	if err != nil {
		return nil, err
	}
	if read.takeOver, err = s.takeOver(ctx, in, found); err != nil {
		return nil, err
	}
	return s.write(ctx, in, read, endpoint)
}

// check says what is wrong with the parts that are no credentials.
func (in Import) check() error {
	if problems := validation.IsDNS1123Label(in.Name); len(problems) > 0 {
		return &InvalidError{Field: "ref.name", Value: in.Name, Allowed: problems[0]}
	}
	for _, key := range slices.Sorted(maps.Keys(in.Labels)) {
		field, value := fmt.Sprintf("labels[%q]", key), in.Labels[key]
		switch keys, values := validation.IsQualifiedName(key), validation.IsValidLabelValue(value); {
		case len(keys) > 0:
			return &InvalidError{Field: "labels", Value: key, Allowed: keys[0]}
		case key == clusterLabel && value != in.Name:
			return &InvalidError{Field: field, Value: value, Allowed: "is the name of the cluster"}
		case len(values) > 0:
			return &InvalidError{Field: field, Value: value, Allowed: values[0]}
		}
	}
	return nil
}

// label adds the labels of an import to an object, and says whether that changes any.
func (in Import) label(object client.Object) (changed bool) {
	labels := maps.Clone(object.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, in.Labels)
	if maps.Equal(labels, object.GetLabels()) {
		return false
	}
	object.SetLabels(labels)
	return true
}

// owning is a Service whose writes belong to a field manager.
func (s *Service) owning(manager string) *Service {
	owning := *s
	owning.Client = client.WithFieldOwner(s.Client, manager)
	return &owning
}

// takeOver is the owner ID that the target is taken over from: nothing if it is free, or this hub's already.
func (s *Service) takeOver(ctx context.Context, in Import, found verify.Found) (string, error) {
	known := &v1alpha1.TalosCluster{}
	if err := client.IgnoreNotFound(s.Client.Get(ctx, client.ObjectKey{Namespace: in.Namespace, Name: in.Name}, known)); err != nil {
		return "", fmt.Errorf("reading TalosCluster %s/%s: %w", in.Namespace, in.Name, err)
	}
	switch {
	case found.OwnerID == "" || found.OwnerID == known.Annotations[v1alpha1.OwnerIDAnnotation]:
		return "", nil
	case in.TakeOver:
		return found.OwnerID, nil
	}
	return "", &RefusedError{Refusals: []plan.Refusal{{
		Gate: v1alpha1.TargetOwnedGate,
		Message: fmt.Sprintf("cluster %s is managed already, under owner ID %s: by another hub, or by this one before it was forgotten here",
			in.Name, found.OwnerID),
		Help: "two hubs would undo each other, so forget it there first, and then import it with --take-over",
	}}}
}

// opened are the files that an import brings, read and cut down to what is needed.
type opened struct {
	kubeconfig  *credentials.Kubeconfig
	talosconfig *credentials.Talosconfig

	// kube and talos are the contents of the Secrets: of files with several contexts nothing but the chosen one.
	kube, talos []byte

	// takeOver is the owner ID that the target is taken over from.
	takeOver string
}

func (s *Service) read(in Import) (opened, error) {
	read := opened{kube: in.Kubeconfig, talos: in.Talosconfig}
	var err error
	read.kubeconfig, err = credentials.ParseKubeconfig(in.Kubeconfig, credentials.KubeconfigOptions{Context: in.KubeContext, AllowInsecure: in.AllowInsecure})
	if err != nil {
		return opened{}, err
	}
	if read.talosconfig, err = credentials.ParseTalosconfig(in.Talosconfig, in.TalosContext, in.Name); err != nil {
		return opened{}, err
	}
	if err := s.refuseUnusable(read.kubeconfig, read.talosconfig); err != nil {
		return opened{}, err
	}
	if read.kubeconfig.Several() {
		if read.kube, err = read.kubeconfig.Minify(); err != nil {
			return opened{}, err
		}
	}
	if read.talosconfig.Several() {
		if read.talos, err = read.talosconfig.Minify(); err != nil {
			return opened{}, err
		}
	}
	return read, nil
}

// refuseUnusable says what keeps credentials that parse from being used now.
func (s *Service) refuseUnusable(kubeconfig *credentials.Kubeconfig, talosconfig *credentials.Talosconfig) error {
	for _, file := range []struct {
		name    string
		problem *credentials.Problem
	}{{"kubeconfig", kubeconfig.Check(s.Now())}, {"talosconfig", talosconfig.Check(s.Now())}} {
		if file.problem != nil {
			return fmt.Errorf("%s is %w: %s", file.name, credentials.ErrInvalid, file.problem.Message)
		}
	}
	return nil
}

func (s *Service) verify(ctx context.Context, in Import, read opened) (verify.Found, error) {
	if in.Offline {
		return verify.Found{}, nil
	}
	verifier := s.Verifier
	if verifier == nil {
		verifier = verify.Live
	}
	found, err := verifier(ctx, read.kubeconfig, read.talosconfig)
	if err != nil {
		return verify.Found{}, &UnopenedError{Cause: err}
	}
	return found, nil
}

func endpointOf(server string) (v1alpha1.APIEndpoint, error) {
	parsed, err := url.Parse(server)
	if err != nil {
		return v1alpha1.APIEndpoint{}, fmt.Errorf("server %q of the kubeconfig: %w", server, err)
	}
	port := defaultHTTPSPort
	if parsed.Port() != "" {
		if port, err = strconv.Atoi(parsed.Port()); err != nil {
			return v1alpha1.APIEndpoint{}, fmt.Errorf("port of server %q of the kubeconfig: %w", server, err)
		}
	}
	return v1alpha1.APIEndpoint{Host: parsed.Hostname(), Port: int32(port)}, nil //nolint:gosec // A URL's port has at most 16 bits.
}

// write makes the Cluster first, since the others belong to it, and the TalosCluster last, since the hub starts with it.
func (s *Service) write(ctx context.Context, in Import, read opened, endpoint v1alpha1.APIEndpoint) (*v1alpha1.TalosCluster, error) {
	talosCluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: in.Namespace, Name: in.Name}}
	steps := newSteps(in.Namespace, "Cluster "+in.Name, "Secret "+talosCluster.KubeconfigSecretName(),
		"Secret "+talosCluster.TalosconfigSecretName(), "TalosCluster "+in.Name)
	cluster, wrote, err := s.ensureCluster(ctx, in, endpoint)
	if err != nil {
		return nil, err
	}
	steps.done(wrote)
	if err := client.IgnoreNotFound(s.Client.Get(ctx, client.ObjectKeyFromObject(talosCluster), talosCluster)); err != nil {
		return nil, steps.failed(fmt.Errorf("reading TalosCluster %s/%s: %w", in.Namespace, in.Name, err))
	}
	for _, secret := range []struct {
		name, key string
		kind      corev1.SecretType
		data      []byte
	}{
		{talosCluster.KubeconfigSecretName(), credentials.KubeconfigKey, clusterv1.ClusterSecretType, read.kube},
		{talosCluster.TalosconfigSecretName(), credentials.TalosconfigKey, corev1.SecretTypeOpaque, read.talos},
	} {
		object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: in.Namespace, Name: secret.name}}
		result, err := controllerutil.CreateOrPatch(ctx, s.Client, object, func() error {
			if object.CreationTimestamp.IsZero() { // The type of a Secret that somebody else made stays, and cannot change.
				object.Type = secret.kind
			}
			if object.Data == nil {
				object.Data = map[string][]byte{}
			}
			object.Data[secret.key] = secret.data
			return s.belong(object, cluster)
		})
		if err != nil {
			return nil, steps.failed(fmt.Errorf("writing Secret %s/%s: %w", in.Namespace, secret.name, err))
		}
		steps.done(result != controllerutil.OperationResultNone)
	}
	_, err = controllerutil.CreateOrPatch(ctx, s.Client, talosCluster, func() error {
		if talosCluster.Annotations[v1alpha1.OwnerIDAnnotation] == "" {
			metav1.SetMetaDataAnnotation(&talosCluster.ObjectMeta, v1alpha1.OwnerIDAnnotation, uuid.NewString())
		}
		if read.takeOver != "" {
			metav1.SetMetaDataAnnotation(&talosCluster.ObjectMeta, v1alpha1.TakeOverAnnotation, read.takeOver)
		}
		talosCluster.Spec.ControlPlaneEndpoint = &endpoint
		talosCluster.Spec.Access = access(talosCluster.Spec.Access, in, read)
		in.label(talosCluster)
		return s.belong(talosCluster, cluster)
	})
	if err != nil {
		return nil, steps.failed(fmt.Errorf("writing TalosCluster %s/%s: %w", in.Namespace, in.Name, err))
	}
	return talosCluster, nil
}

// steps are the objects that an import writes, in order, and how far it came.
type steps struct {
	namespace string
	objects   []string

	// finished is how many of them are as they shall be; wrote says that one of them was not before.
	finished int
	wrote    bool
}

func newSteps(namespace string, objects ...string) *steps {
	return &steps{namespace: namespace, objects: objects}
}

// done is said after each object.
func (s *steps) done(wrote bool) {
	s.finished++
	s.wrote = s.wrote || wrote
}

// failed says how far an import came that wrote anything.
func (s *steps) failed(err error) error {
	if !s.wrote {
		return err
	}
	return &PartlyDoneError{
		Done:    fmt.Sprintf("in namespace %s, these are written: %s", s.namespace, strings.Join(s.objects[:s.finished], ", ")),
		Missing: "these are not: " + strings.Join(s.objects[s.finished:], ", "),
		Finish:  "run the import again",
		Cause:   err,
	}
}

// access says how the Secrets are used: what was checked is what is used from now on.
func access(before *v1alpha1.AccessSpec, in Import, read opened) *v1alpha1.AccessSpec {
	after := ptr.Deref(before, v1alpha1.AccessSpec{})
	after.TalosconfigContext = in.TalosContext
	switch {
	case read.kubeconfig.Config.Insecure:
		after.KubernetesServerVerification = v1alpha1.ServerVerificationSkipped
	case after.KubernetesServerVerification == v1alpha1.ServerVerificationSkipped:
		after.KubernetesServerVerification = ""
	}
	if before == nil && after == (v1alpha1.AccessSpec{}) {
		return nil
	}
	return &after
}

// ensureCluster makes the Cluster, or takes the one that an earlier import made, and says whether that wrote anything. A Cluster of somebody
// else is left alone.
func (s *Service) ensureCluster(ctx context.Context, in Import, endpoint v1alpha1.APIEndpoint) (cluster *clusterv1.Cluster, wrote bool, err error) {
	cluster = &clusterv1.Cluster{}
	err = s.Client.Get(ctx, client.ObjectKey{Namespace: in.Namespace, Name: in.Name}, cluster)
	switch {
	case err == nil:
		return s.takeCluster(ctx, cluster, in, endpoint)
	case !apierrors.IsNotFound(err):
		return nil, false, fmt.Errorf("reading Cluster %s/%s: %w", in.Namespace, in.Name, err)
	}
	cluster.Namespace, cluster.Name = in.Namespace, in.Name
	cluster.Spec.InfrastructureRef = infrastructure(in.Name)
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: endpoint.Host, Port: endpoint.Port}
	in.label(cluster)
	if err := s.Client.Create(ctx, cluster); err != nil {
		return nil, false, fmt.Errorf("creating Cluster %s/%s: %w", in.Namespace, in.Name, err)
	}
	return cluster, true, nil
}

// takeCluster takes the Cluster that an earlier import made, and brings its endpoint and labels up to date.
func (s *Service) takeCluster(ctx context.Context, cluster *clusterv1.Cluster, in Import, endpoint v1alpha1.APIEndpoint) (taken *clusterv1.Cluster, wrote bool, err error) {
	if ref := cluster.Spec.InfrastructureRef; ref != infrastructure(cluster.Name) {
		return nil, false, &ExistsError{
			What: fmt.Sprintf("there is a Cluster %s/%s already, and its infrastructure is %q and not %q",
				cluster.Namespace, cluster.Name, ref.APIGroup+" "+ref.Kind+" "+ref.Name, "ichor.maesh.dev TalosCluster "+cluster.Name),
			Help: "choose another name, or give no files to manage it beside Cluster API's providers",
		}
	}
	patched := cluster.DeepCopy()
	patched.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: endpoint.Host, Port: endpoint.Port}
	if labelled := in.label(patched); !labelled && patched.Spec.ControlPlaneEndpoint == cluster.Spec.ControlPlaneEndpoint {
		return cluster, false, nil
	}
	if err := s.Client.Patch(ctx, patched, client.MergeFrom(cluster)); err != nil {
		return nil, false, fmt.Errorf("changing Cluster %s/%s: %w", cluster.Namespace, cluster.Name, err)
	}
	return patched, true, nil
}

// infrastructure is how a Cluster names its TalosCluster.
func infrastructure(name string) clusterv1.ContractVersionedObjectReference {
	return capi.Infrastructure(name)
}

// belong marks an object as one of a cluster, beside what else it belongs to.
func (s *Service) belong(object client.Object, cluster *clusterv1.Cluster) error {
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[clusterv1.ClusterNameLabel] = cluster.Name
	object.SetLabels(labels)
	return controllerutil.SetOwnerReference(cluster, object, s.Client.Scheme())
}
