// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/controllers/versions"
	"ichor.maesh.dev/hub/providers/tracked"
)

const (
	// FieldManager owns, in server-side apply, what the start of an operation writes into the spec of a TalosCluster.
	FieldManager = "ichor-operations"

	// importManager owns what an import writes.
	importManager = "ichor-import"
)

// freeManagers own fields that may be taken over, since they say nothing of what those shall be: the hub itself and its command line, under
// every name that they have had; what brings objects from elsewhere as they were; and what the API server makes of who is not known.
var freeManagers = []string{FieldManager, importManager, "ichor", "ichor-hub", "clusterctl", "velero-server", "before-first-apply"}

// targetField is a field of a spec that operations bring about.
type targetField struct {
	name string
	path []string
	of   func(v1alpha1.OperationTarget) string
}

// specFields are those of a TalosCluster's spec.
var specFields = []targetField{
	{"talos_version", []string{"talosVersion"}, func(t v1alpha1.OperationTarget) string { return t.TalosVersion }},
	{"schematic_id", []string{"schematicID"}, func(t v1alpha1.OperationTarget) string { return t.SchematicID }},
	{"kubernetes_version", []string{"kubernetesVersion"}, func(t v1alpha1.OperationTarget) string { return t.KubernetesVersion }},
	{"cilium_version", []string{"cni", "ciliumVersion"}, func(t v1alpha1.OperationTarget) string { return t.CiliumVersion }},
	{"kube_proxy", []string{"cni", "kubeProxy"}, func(t v1alpha1.OperationTarget) string { return string(t.KubeProxy) }},
}

// targetFields are those of every spec.
var targetFields = append(slices.Clip(specFields), targetField{"ichor_version", hubPath, func(t v1alpha1.OperationTarget) string { return t.IchorVersion }})

// contractPath is the version contract, which goes along with the version of Talos.
var contractPath = []string{"machineConfig", "versionContract"}

// specField is a field of the spec, as people write it.
func specField(path []string) string { return "spec." + strings.Join(path, ".") }

// change is what a start writes into the spec of an object.
type change struct {
	// object is what is written, and kind its kind.
	object client.Object
	kind   string

	// fields are what changes, for people: "spec.talosVersion is v1.14.1".
	fields []string

	// apply is the whole of what the hub applies: what changes, and what it has applied before.
	apply map[string]any

	// owners are the foreign field managers of what changes, by field.
	owners []fieldOwner

	// takes says that a field is taken over from one of the freeManagers.
	takes bool

	// warnings are what goes along, and what does not.
	warnings []plan.Warning
}

// fieldOwner is who owns a field.
type fieldOwner struct{ field, manager string }

// changeOf compares what the spec of an object asks for with what a start wants of it.
func changeOf(object client.Object, target v1alpha1.OperationTarget) change {
	if installation, ok := object.(*v1alpha1.IchorInstallation); ok {
		return changeOfHub(installation, target)
	}
	cluster, _ := object.(*v1alpha1.TalosCluster) // There are no others.
	return changeOfCluster(cluster, target)
}

// changeOfCluster compares what the spec of a TalosCluster asks for with what a start wants of it. Nothing else of the spec is written, and what
// the hub applied before stays applied.
func changeOfCluster(cluster *v1alpha1.TalosCluster, target v1alpha1.OperationTarget) change {
	declared, c := targets.Declared(cluster), change{object: cluster, kind: "TalosCluster", apply: map[string]any{}}
	for _, field := range specFields {
		c.take(field.path, field.of(declared), field.of(target))
	}
	c.take(contractPath, cluster.VersionContract(), c.contract(cluster, declared, target))
	return c
}

// take writes a field of the spec, if somebody wants something else of it than it has.
func (c *change) take(field []string, now, want string) {
	path := append([]string{"spec"}, field...)
	managers := managersOf(c.object.GetManagedFields(), path...)
	if want == "" || want == now {
		if now != "" && slices.ContainsFunc(managers, applied) {
			_ = unstructured.SetNestedField(c.apply, now, path...)
		}
		return
	}
	_ = unstructured.SetNestedField(c.apply, want, path...) // Maps of its own making never clash.
	c.fields = append(c.fields, fmt.Sprintf("%s is %s", specField(field), want))
	for _, entry := range managers {
		switch {
		case applied(entry):
		case slices.Contains(freeManagers, entry.Manager):
			c.takes = true
		default:
			c.owners = append(c.owners, fieldOwner{specField(field), entry.Manager})
		}
	}
}

// contract is what the version contract shall be where a start writes a newer Talos, and nothing where it stays: configs for new machines
// are made for what the others run. One that somebody else keeps stays, since an older one does no harm.
func (c *change) contract(cluster *v1alpha1.TalosCluster, declared, target v1alpha1.OperationTarget) string {
	now := cluster.VersionContract()
	want := versions.ContractFor(target.TalosVersion, now)
	if want == "" || declared.TalosVersion == target.TalosVersion {
		return ""
	}
	for _, entry := range managersOf(cluster.ManagedFields, append([]string{"spec"}, contractPath...)...) {
		if !applied(entry) && !slices.Contains(freeManagers, entry.Manager) {
			c.warn("%s stays %s, since it belongs to field manager %q: set it to %s there once all machines run Talos %s",
				specField(contractPath), now, entry.Manager, want, target.TalosVersion)
			return ""
		}
	}
	c.warn("%s goes from %s to %s with it: configs for new machines are made by the rules of Talos %[3]s from then on", specField(contractPath), now, want)
	return want
}

func (c *change) warn(format string, words ...any) {
	c.warnings = append(c.warnings, plan.Warning{Code: plan.VersionContractWarning, Message: fmt.Sprintf(format, words...)})
}

// applied says whether an entry is what earlier starts have applied. The same manager is another one where it did not apply.
func applied(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply
}

// managersOf are the field managers that own a field.
func managersOf(entries []metav1.ManagedFieldsEntry, path ...string) []metav1.ManagedFieldsEntry {
	parts := make([]any, len(path))
	for i, part := range path {
		parts[i] = part
	}
	wanted := fieldpath.MakePathOrDie(parts...)
	var managers []metav1.ManagedFieldsEntry
	for _, entry := range entries {
		set := &fieldpath.Set{}
		if entry.Subresource != "" || entry.FieldsV1 == nil || set.FromJSON(entry.FieldsV1.GetRawReader()) != nil {
			continue
		}
		if set.Has(wanted) {
			managers = append(managers, entry)
		}
	}
	return managers
}

// refusals are why the spec must not be written from here: somebody else says what it shall be.
func (c change) refusals(start *Start) []plan.Refusal {
	if len(c.fields) == 0 {
		return nil
	}
	if who := tracked.ByGit(c.object, c.kind); who != "" {
		return []plan.Refusal{{
			Gate:    v1alpha1.SpecTrackedGate,
			Message: fmt.Sprintf("%s is kept by %s, which would undo a change made here", c.name(), who),
			Help:    fmt.Sprintf("change it in Git (%s), and when %s asks for that, start with: %s", commas(c.fields), c.name(), start.Command()),
		}}
	}
	var refusals []plan.Refusal
	for _, owner := range c.owners {
		refusals = append(refusals, owner.refusal(c.name(), start))
	}
	return refusals
}

// name names the object, for people.
func (c change) name() string { return c.kind + " " + c.object.GetName() }

func (o fieldOwner) refusal(object string, start *Start) plan.Refusal {
	return plan.Refusal{
		Gate:    v1alpha1.SpecOwnedGate,
		Message: fmt.Sprintf("%s of %s belongs to field manager %q", o.field, object, o.manager),
		Help:    start.handOver(o.field),
	}
}

// mostHelp is how long a help may be.
const mostHelp = 256

// handOver says how a start comes to a field that somebody else owns: it is set where it was set before, or in the name of the hub, whose it
// is from then on.
func (s *Start) handOver(field string) string {
	for _, known := range targetFields {
		want := known.of(s.Plan.Target)
		if specField(known.path) != field || want == "" {
			continue
		}
		help := fmt.Sprintf("set it where it was set before, or hand it over with: %s; then start again", s.takeCommand(known.path, want))
		if len(help) <= mostHelp {
			return help
		}
	}
	return "set it in the way in which it was set before, and then start with: " + s.Command()
}

// takeCommand sets a field in the name of the hub.
func (s *Start) takeCommand(path []string, want string) string {
	patch := strconv.Quote(want)
	for _, key := range slices.Backward(append([]string{"spec"}, path...)) {
		patch = fmt.Sprintf("{%q:%s}", key, patch)
	}
	c := changeOf(s.declares(), s.Plan.Target)
	return shell([]string{
		"kubectl", "patch", strings.ToLower(c.kind), c.object.GetName(), "-n", c.object.GetNamespace(), "--type", "merge", "--field-manager", FieldManager, "-p", patch,
	})
}

// declare writes the target's spec, if that asks for something else, and says what it wrote. Nobody else's field is taken, and nothing is
// written over a spec that asks for something else than the plan saw.
func (s *Service) declare(ctx context.Context, start *Start, dry bool) (wrote []string, err error) {
	object, _ := start.declares().DeepCopyObject().(client.Object) // It is one.
	name := changeOf(object, start.Plan.Target).name()
	err = retry.OnError(retry.DefaultRetry, func(err error) bool { return s.stillHolds(ctx, start, object, err) }, func() error {
		c := changeOf(object, start.Plan.Target)
		if wrote = c.fields; len(wrote) == 0 {
			return nil
		}
		if refusals := c.refusals(start); len(refusals) > 0 {
			return &RefusedError{Refusals: refusals}
		}
		return s.apply(ctx, c, dry)
	})
	switch owners := owners(err); {
	case err == nil:
		return wrote, nil
	case len(owners) > 0: // Whoever they are: the object did not tell before.
		return nil, &RefusedError{Refusals: refusalsOf(owners, name, start)}
	case apierrors.IsConflict(err):
		return nil, &ChangedError{What: fmt.Sprintf("the spec of %s was changed meanwhile, and nothing was started", name)}
	case errors.As(err, new(*RefusedError)):
		return nil, err
	}
	return nil, fmt.Errorf("writing the spec of %s, nothing was started: %w", name, err)
}

// apply writes a change, on the condition that the object is what was looked at.
func (s *Service) apply(ctx context.Context, c change, dry bool) error {
	object := &unstructured.Unstructured{Object: c.apply}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(c.kind))
	object.SetNamespace(c.object.GetNamespace())
	object.SetName(c.object.GetName())
	object.SetResourceVersion(c.object.GetResourceVersion())
	options := []client.ApplyOption{client.FieldOwner(FieldManager)}
	if c.takes {
		options = append(options, client.ForceOwnership)
	}
	if dry {
		options = append(options, client.DryRunAll)
	}
	err := s.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), options...)
	if owners := owners(err); len(owners) > 0 && !slices.ContainsFunc(owners, foreign) {
		return s.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), append(options, client.ForceOwnership)...)
	}
	return err
}

// foreign says whether an owner that the management API names is somebody whose field may not be taken. An object that nobody was ever
// asked about names its managers only then.
func foreign(cause metav1.StatusCause) bool {
	return !slices.ContainsFunc(freeManagers, func(manager string) bool { return strings.Contains(cause.Message, strconv.Quote(manager)) })
}

// stillHolds says whether a plan still holds although somebody wrote the object meanwhile: the hub writes status at any time. It reads the
// object again.
func (s *Service) stillHolds(ctx context.Context, start *Start, object client.Object, err error) bool {
	if !apierrors.IsConflict(err) || len(owners(err)) > 0 || s.Client.Get(ctx, client.ObjectKeyFromObject(object), object) != nil {
		return false
	}
	cluster := start.Facts.Cluster
	if read, ok := object.(*v1alpha1.TalosCluster); ok {
		cluster = read
	}
	installation, _ := object.(*v1alpha1.IchorInstallation)
	declared := planners[start.Spec.Kind].Narrow(targets.DeclaredFor(cluster, installation))
	return declared == start.Declared || declared == start.Plan.Target
}

// owners are the field managers that an apply was refused for.
func owners(err error) []metav1.StatusCause {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(status.Status().Details.Causes), func(c metav1.StatusCause) bool {
		return c.Type != metav1.CauseTypeFieldManagerConflict
	})
}

func refusalsOf(causes []metav1.StatusCause, object string, start *Start) []plan.Refusal {
	var refusals []plan.Refusal
	for _, cause := range causes {
		field := strings.TrimPrefix(cause.Field, ".")
		refusals = append(refusals, plan.Refusal{
			Gate:    v1alpha1.SpecOwnedGate,
			Message: fmt.Sprintf("%s of %s: %s", field, object, cause.Message),
			Help:    start.handOver(field),
		})
	}
	return refusals
}
