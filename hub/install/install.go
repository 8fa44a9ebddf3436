// SPDX-License-Identifier: Apache-2.0

// Package install brings a hub that runs on Kubernetes to the release that this build is of. It is what the Job of an upgrade runs: whatever it
// finds done already it leaves as it is, so it may be begun with again.
package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/controllers/versions"
	"ichor.maesh.dev/hub/hub/manifests"
	"ichor.maesh.dev/hub/providers/installation"
)

const (
	// FieldManager owns, in server-side apply, what an upgrade writes.
	FieldManager = "ichor-installer"

	// pause is between two looks at what takes its time.
	pause = time.Second

	// rightsWithin is how long the API server may take to know of a right that was given just now.
	rightsWithin = 15 * time.Second
)

// Options say what to install where.
type Options struct {
	// Client is the installer's own access. It reads past every cache.
	Client client.Client

	// Namespace is the hub's.
	Namespace string

	// Version is what this build is, From the version of the hub that asks, and To the one it asks for.
	Version, From, To string

	// Out hears what is done.
	Out io.Writer
}

// Run installs the release, and returns when all replicas of the hub are of it. Its answer is for people.
func Run(ctx context.Context, o Options) (done string, err error) {
	live, err := o.check(ctx)
	if err != nil {
		return "", err
	}
	release, err := manifests.Release(o.Namespace)
	if err != nil {
		return "", err
	}
	for _, object := range release {
		if err := o.bring(ctx, object, live); err != nil {
			return "", err
		}
	}
	if err := o.awaitRollout(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("the hub is %s in all replicas", o.To), nil
}

// check refuses what this build cannot do, before anything is changed. It returns the Deployment as it is.
func (o Options) check(ctx context.Context) (*appsv1.Deployment, error) {
	if o.Version != o.To {
		return nil, fmt.Errorf("this is the installer of %s, and not of %s: the image has the wrong tag", o.Version, o.To)
	}
	objection, err := versions.HubUpgrade(o.From, o.To)
	switch {
	case err != nil:
		return nil, err
	case objection != nil:
		return nil, errors.New(objection.Message)
	}
	deployment, err := o.deployment(ctx)
	if err != nil {
		return nil, err
	}
	if obstacle := installation.InTheWay(deployment, o.Namespace); obstacle != nil {
		return nil, obstacle
	}
	image := installation.Described(deployment).Image
	if newer(image, o.To) {
		return nil, fmt.Errorf("Deployment %s runs %s already, which is newer than %s", installation.DeploymentName, image, o.To)
	}
	return deployment, nil
}

// newer says whether an image is tagged with a newer version.
func newer(image, version string) bool {
	tag, ok := installation.VersionOf(image)
	if _, err := versions.Parse(tag); !ok || err != nil {
		return false
	}
	return versions.Compare(tag, version) > 0
}

// deployment reads the hub's Deployment; nil if there is none.
func (o Options) deployment(ctx context.Context) (*appsv1.Deployment, error) {
	deployment := &appsv1.Deployment{}
	err := o.Client.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: installation.DeploymentName}, deployment)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // Nothing is what there is.
	case err != nil:
		return nil, fmt.Errorf("reading Deployment %s: %w", installation.DeploymentName, err)
	}
	return deployment, nil
}

// manner is how an object of the release is brought to what the management cluster has.
type manner int

const (
	// replaced objects become what the release has, whatever they were: nobody has anything to choose there.
	replaced manner = iota

	// filled objects get what they lack. What they have is somebody's choice, and one that is not there is not wanted.
	filled

	// renewed objects are replaced where they are, and not made: they are installed on their own.
	renewed
)

var manners = map[string]manner{
	"Service": filled, "PodDisruptionBudget": filled, "NetworkPolicy": filled, "Deployment": filled,
	"MutatingAdmissionPolicy": renewed, "MutatingAdmissionPolicyBinding": renewed,
}

// bring brings one object to what the release has.
func (o Options) bring(ctx context.Context, object *unstructured.Unstructured, hub *appsv1.Deployment) error {
	name := fmt.Sprintf("%s %s", object.GetKind(), object.GetName())
	how := manners[object.GetKind()]
	if how != replaced {
		there, err := o.there(ctx, object)
		switch {
		case err != nil:
			return fmt.Errorf("reading %s: %w", name, err)
		case there == nil:
			o.say("%s is not installed, and stays so", name)
			return nil
		case how == filled:
			object = fill(object, there)
		}
	}
	if object.GetKind() == "Deployment" {
		image, _ := installation.ImageOf(installation.Described(hub).Image, o.To)
		if err := setImage(object, image); err != nil {
			return err
		}
	}
	if err := o.apply(ctx, object); err != nil {
		return fmt.Errorf("applying %s: %w", name, err)
	}
	o.say("%s is applied", name)
	if object.GetKind() == "CustomResourceDefinition" {
		return o.awaitEstablished(ctx, object.GetName())
	}
	return nil
}

func (o Options) say(format string, words ...any) { fmt.Fprintf(o.Out, format+"\n", words...) }

// there reads an object as it is; nil if it is not, or if its kind is not.
func (o Options) there(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	there := &unstructured.Unstructured{}
	there.SetGroupVersionKind(object.GroupVersionKind())
	switch err := o.Client.Get(ctx, client.ObjectKeyFromObject(object), there); {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return nil, nil //nolint:nilnil // Nothing is what there is.
	case err != nil:
		return nil, err
	}
	return there, nil
}

// apply applies an object. A right that the installer has given itself is known to all API servers a moment later.
func (o Options) apply(ctx context.Context, object *unstructured.Unstructured) error {
	last := error(nil)
	err := wait.PollUntilContextTimeout(ctx, pause, rightsWithin, true, func(ctx context.Context) (bool, error) {
		last = o.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), client.FieldOwner(FieldManager), client.ForceOwnership)
		if apierrors.IsForbidden(last) {
			return false, nil
		}
		return true, last
	})
	if last != nil {
		return last
	}
	return err
}

// awaitEstablished returns when a definition is served.
func (o Options) awaitEstablished(ctx context.Context, name string) error {
	err := wait.PollUntilContextTimeout(ctx, pause, time.Minute, true, func(ctx context.Context) (bool, error) {
		definition := &unstructured.Unstructured{}
		definition.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		if err := o.Client.Get(ctx, client.ObjectKey{Name: name}, definition); err != nil {
			return false, err
		}
		return established(definition), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for definition %s to be served: %w", name, err)
	}
	return nil
}

func established(definition *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	for _, condition := range conditions {
		fields, _ := condition.(map[string]any)
		if fields["type"] == string(apiextensionsv1.Established) && fields["status"] == "True" {
			return true
		}
	}
	return false
}

// awaitRollout returns when all replicas are of the release and ready, and says what they wait for if they do not get there in time.
func (o Options) awaitRollout(ctx context.Context) error {
	said, waits := "", "nothing is known of it"
	err := wait.PollUntilContextCancel(ctx, pause, true, func(ctx context.Context) (bool, error) {
		deployment, err := o.deployment(ctx)
		if err != nil {
			return false, nil //nolint:nilerr // The management API may be away for a while.
		}
		described := installation.Described(deployment)
		if described == nil {
			return false, errors.New("the Deployment is gone")
		}
		if waits = described.Waits; waits != "" && waits != said {
			said = waits
			o.say("%s", waits)
		}
		return described.RolledOut, nil
	})
	if err != nil {
		return fmt.Errorf("not all replicas are of %s in time: %s%s: %w", o.To, waits, o.trouble(context.WithoutCancel(ctx)), err)
	}
	return nil
}
