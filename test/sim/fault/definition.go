// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"fmt"
	"slices"
	"strings"
)

// Names of the fault points. The simulated machine asks for its point by name at the moment that the fault concerns.
const (
	// InstallerExit makes a run of the installer end with a non-zero exit code.
	InstallerExit = "installer-exit"
	// InstallerCut breaks the stream of an installer's messages before its exit code.
	InstallerCut = "installer-cut"
	// InstallerBusy answers a request to install as if another installer ran.
	InstallerBusy = "installer-busy"
	// InstallerLost lets an installer report success though nothing was written.
	InstallerLost = "installer-lost"
	// Fallback makes the next boot into a newly installed slot fail, so that the machine comes back on the old one.
	Fallback = "fallback"
	// OtherVersion makes the next boot come up with a version that nobody asked for.
	OtherVersion = "other-version"
	// OtherIdentity makes a machine tell another UUID, or register under another node name.
	OtherIdentity = "other-identity"
	// RebootStuck keeps a machine in the reboot sequence: its API answers, and it does not go down.
	RebootStuck = "reboot-stuck"
	// ShutdownStuck keeps a machine in the shutdown sequence: its API answers, and it does not go off.
	ShutdownStuck = "shutdown-stuck"
	// PowerReturns makes a machine that went off power itself on again.
	PowerReturns = "power-returns"
	// BootStuck keeps a machine that went down from coming back.
	BootStuck = "boot-stuck"
	// ConfigBreaksBoot keeps a machine that went down from coming back with another machine config than it had.
	ConfigBreaksBoot = "config-breaks-boot"
	// EtcdMissing keeps the etcd member of a machine that booted from running.
	EtcdMissing = "etcd-missing"
	// EtcdGivesUp ends the waiting of an etcd that has no data and finds none to join.
	EtcdGivesUp = "etcd-gives-up"
	// EtcdLearner makes an etcd member a learner.
	EtcdLearner = "etcd-learner"
	// EtcdAlarm raises an etcd alarm.
	EtcdAlarm = "etcd-alarm"
	// EtcdMembersDiffer makes an etcd member know other members than the others do.
	EtcdMembersDiffer = "etcd-members-differ"
	// EtcdNoLeader makes etcd members lose their leader.
	EtcdNoLeader = "etcd-no-leader"
	// BootstrapLost makes a control plane forget that it was told to begin an etcd.
	BootstrapLost = "bootstrap-lost"
	// EtcdSnapshot spoils a snapshot of etcd on its way.
	EtcdSnapshot = "etcd-snapshot"
	// Unreachable disturbs the network on the way to a machine's APIs while the machine itself goes on running.
	Unreachable = "unreachable"
	// PullFailure makes an image pull fail.
	PullFailure = "pull-failure"
	// ImageMissing lets an image be in no registry.
	ImageMissing = "image-missing"
	// SlowPull makes image pulls take longer.
	SlowPull = "slow-pull"
	// ComponentCrash keeps a part of Kubernetes from staying up.
	ComponentCrash = "component-crash"
	// SlowRollout keeps the new pods of a daemon set or deployment from becoming ready for a while, or for good.
	SlowRollout = "slow-rollout"
	// AdmissionRefused makes an admission webhook refuse changes of objects, or fail.
	AdmissionRefused = "admission-refused"
	// DeprecatedAPI lets somebody use a version of an API that a later Kubernetes does not serve.
	DeprecatedAPI = "deprecated-api"
	// TalosRefused makes calls of the Talos API fail.
	TalosRefused = "talos-refused"
	// KubernetesRefused makes requests to the Kubernetes API fail.
	KubernetesRefused = "kubernetes-refused"
	// PodStuck keeps pods that were deleted from ending.
	PodStuck = "pod-stuck"
	// ForeignCordon cordons a Node, as an administrator would.
	ForeignCordon = "foreign-cordon"
	// ForeignNode adds a Node that is no Talos machine.
	ForeignNode = "foreign-node"
	// ServerCertificate makes servers show a certificate that clients must not accept.
	ServerCertificate = "server-certificate"
	// ClientCertificate makes servers refuse the certificates of their clients.
	ClientCertificate = "client-certificate"
	// SecretsStale keeps certificates and keys from following the machine config.
	SecretsStale = "secrets-stale"
	// SecretsLate restarts static pods for new secrets before their files are written.
	SecretsLate = "secrets-late"
)

// Parameters of faults.
const (
	// ParamCode is an exit code, or the status code of a refusal.
	ParamCode = "code"
	// ParamAPI says which API a fault concerns: talos, kube or both.
	ParamAPI = "api"
	// ParamMode says how a fault shows.
	ParamMode = "mode"
	// ParamDelay is how much longer something slow takes.
	ParamDelay = "delay"
	// ParamGoesOn says whether an installer goes on when its stream breaks.
	ParamGoesOn = "goes-on"
	// ParamVersion is the version that OtherVersion boots, that ComponentCrash concerns, and of the API that DeprecatedAPI is about.
	ParamVersion = "version"
	// ParamUUID and ParamName are what OtherIdentity tells. ParamName names an object elsewhere.
	ParamUUID = "uuid"
	ParamName = "name"
	// ParamWhen says when OtherIdentity begins, and whether TalosRefused comes before or after the call does its work.
	ParamWhen = "when"
	// ParamAlarm is the alarm of EtcdAlarm.
	ParamAlarm = "alarm"
	// ParamMethod, ParamResource and ParamMessage select and word what TalosRefused and KubernetesRefused refuse.
	ParamMethod   = "method"
	ParamResource = "resource"
	ParamMessage  = "message"
	// ParamAnnotation is what ForeignCordon leaves on the Node, as KEY=VALUE.
	ParamAnnotation = "annotation"
	// ParamProblem is what is wrong with a certificate.
	ParamProblem = "problem"
	// ParamImage is a pattern of image names with their tags, in which * stands for anything.
	ParamImage = "image"
	// ParamComponent is a part of Kubernetes, such as kube-apiserver or kubelet.
	ParamComponent = "component"
	// ParamGroup, ParamRelease and ParamObjects describe the version of an API that DeprecatedAPI is about.
	ParamGroup   = "group"
	ParamRelease = "removed-release"
	ParamObjects = "objects"
	// ParamSerial is the serial number of the one certificate that ClientCertificate refuses.
	ParamSerial = "serial"
	// ParamPath is a pattern of the files that SecretsStale is about.
	ParamPath = "path"
)

// Endpoint stands for a cluster's load balancer where a fault names a node.
const Endpoint = "endpoint"

// Definition describes one kind of fault: what the command line shows and what Inject checks.
type Definition struct {
	// Name is the fault point.
	Name string
	// Summary is one line of help.
	Summary string
	// Standing faults hold until they are cleared; the others fire a number of times.
	Standing bool
	// Params are the parameters the fault understands.
	Params []Param
}

// Param is one parameter of a fault.
type Param struct {
	// Name is the key in Fault.Params.
	Name string
	// Default is used when the fault does not say.
	Default string
	// Values are the accepted values; empty accepts any.
	Values []string
	// Summary is one line of help.
	Summary string
}

// which is the parameter of faults that concern one API or both.
var which = Param{Name: ParamAPI, Default: "both", Values: []string{"talos", "kube", "both"}, Summary: "which API"}

// Definitions is the table of all faults. A new fault is a row here and one question at the place that it concerns.
var Definitions = []Definition{
	{
		Name:    InstallerExit,
		Summary: "the installer ends with a non-zero exit code and the inactive slot stays as it was",
		Params:  []Param{{Name: ParamCode, Default: "1", Summary: "exit code"}},
	},
	{
		Name:    InstallerCut,
		Summary: "the stream of the installer's messages breaks before its exit code",
		Params:  []Param{{Name: ParamGoesOn, Default: "true", Values: []string{"true", "false"}, Summary: "whether the installer goes on"}},
	},
	{
		Name:    InstallerBusy,
		Summary: "a request to install is answered as if another installer ran",
	},
	{
		Name:    InstallerLost,
		Summary: "the installer reports success and has written nothing",
	},
	{
		Name:    Fallback,
		Summary: "the next boot into a newly installed slot fails and the machine comes back on the old one",
	},
	{
		Name:    OtherVersion,
		Summary: "the next boot comes up with a version that nobody asked for",
		Params:  []Param{{Name: ParamVersion, Default: "v1.13.2", Summary: "the version"}},
	},
	{
		Name:     OtherIdentity,
		Summary:  "the machine tells another UUID, or registers under another node name",
		Standing: true,
		Params: []Param{
			{Name: ParamUUID, Summary: "the UUID; empty is its own"},
			{Name: ParamName, Summary: "the node name; empty is its own"},
			{Name: ParamWhen, Default: "now", Values: []string{"now", "reboot"}, Summary: "from when on"},
		},
	},
	{
		Name:     RebootStuck,
		Summary:  "the machine stays in the reboot sequence: its API answers, and it does not go down",
		Standing: true,
	},
	{
		Name:     ShutdownStuck,
		Summary:  "the machine stays in the shutdown sequence: its API answers, and it does not go off",
		Standing: true,
	},
	{
		Name:    PowerReturns,
		Summary: "a machine that was told to power off does, and powers itself on again",
	},
	{
		Name:     BootStuck,
		Summary:  "the machine does not come back from being down",
		Standing: true,
	},
	{
		Name:     ConfigBreaksBoot,
		Summary:  "the machine does not come back from a boot that brings another machine config in force",
		Standing: true,
	},
	{
		Name:     EtcdMissing,
		Summary:  "the etcd member of a machine that boots does not run",
		Standing: true,
		Params:   []Param{{Name: ParamMode, Default: "blocking", Values: []string{"blocking", "silent"}, Summary: "whether the machine waits for it, or says that it is ready"}},
	},
	{
		Name:     EtcdGivesUp,
		Summary:  "an etcd without data waits for others for a while, and then starts no more until the machine boots or is told to begin one",
		Standing: true,
		Params:   []Param{{Name: ParamDelay, Default: "30m", Summary: "for how long it waits"}},
	},
	{
		Name:     EtcdLearner,
		Summary:  "the etcd member is a learner",
		Standing: true,
	},
	{
		Name:     EtcdAlarm,
		Summary:  "etcd has an alarm",
		Standing: true,
		Params:   []Param{{Name: ParamAlarm, Default: "NOSPACE", Values: []string{"NOSPACE", "CORRUPT"}, Summary: "which"}},
	},
	{
		Name:     EtcdMembersDiffer,
		Summary:  "the etcd member knows other members than the others",
		Standing: true,
	},
	{
		Name:     EtcdNoLeader,
		Summary:  "the etcd member has no leader; without a node, the whole etcd",
		Standing: true,
	},
	{
		Name:    EtcdSnapshot,
		Summary: "a snapshot of etcd does not arrive as it was sent",
		Params: []Param{
			{Name: ParamMode, Default: "cut", Values: []string{"cut", "short", "corrupt", "slow", "hang"}, Summary: "the stream breaks in the middle, ends there without an error, carries a wrong byte, takes a delay for each message, or stops for ever"},
			{Name: ParamDelay, Default: "100ms", Summary: "what slow adds to each message"},
		},
	},
	{
		Name:    BootstrapLost,
		Summary: "a control plane accepts to begin an etcd with a snapshot, and forgets it",
	},
	{
		Name:     Unreachable,
		Summary:  "the machine runs, but its APIs cannot be reached, or only just; node endpoint is the load balancer",
		Standing: true,
		Params: []Param{
			which,
			{Name: ParamMode, Default: "refuse", Values: []string{"refuse", "blackhole", "reset", "slow"}, Summary: "how it shows"},
			{Name: ParamDelay, Default: "500ms", Summary: "what a slow network adds to each answer"},
		},
	},
	{
		Name:    PullFailure,
		Summary: "an image pull fails",
		Params:  []Param{whichImage},
	},
	{
		Name:     ImageMissing,
		Summary:  "no registry has the image",
		Standing: true,
		Params:   []Param{{Name: ParamImage, Default: "*/kubelet:*", Summary: "the image with its tag; * stands for anything"}},
	},
	{
		Name:     SlowPull,
		Summary:  "image pulls take longer",
		Standing: true,
		Params:   []Param{whichImage, {Name: ParamDelay, Default: "10s", Summary: "how much longer"}},
	},
	{
		Name:     ComponentCrash,
		Summary:  "a part of Kubernetes does not stay up when it is started",
		Standing: true,
		Params: []Param{
			{Name: ParamComponent, Default: "kube-apiserver", Summary: "kube-apiserver, kube-controller-manager, kube-scheduler or kubelet; * stands for anything"},
			{Name: ParamVersion, Default: "*", Summary: "only in this version, such as v1.36.2 or v1.36.*"},
			{Name: ParamMessage, Default: "unknown flag: --removed", Summary: "what it says before it ends"},
		},
	},
	{
		Name:     SlowRollout,
		Summary:  "new pods of a daemon set or deployment do not become ready",
		Standing: true,
		Params: []Param{
			{Name: ParamName, Default: "kube-proxy", Summary: "the name of the set; * stands for anything"},
			{Name: ParamDelay, Summary: "for how much longer than usual; empty is until the fault is cleared"},
		},
	},
	{
		Name:    AdmissionRefused,
		Summary: "an admission webhook refuses changes of objects, also in dry runs, or cannot be reached",
		Params: []Param{
			{Name: ParamResource, Default: "daemonsets", Summary: "the resource, with its subresource if it has one; * is any"},
			{Name: ParamName, Default: "*", Summary: "the object; * stands for anything"},
			{Name: ParamMode, Default: "denies", Values: []string{"denies", "fails"}, Summary: "whether it says no, or does not answer"},
			{Name: ParamMessage, Default: "not allowed by policy", Summary: "what it says"},
		},
	},
	{
		Name:     DeprecatedAPI,
		Summary:  "somebody uses a version of an API that a later Kubernetes does not serve",
		Standing: true,
		Params: []Param{
			{Name: ParamGroup, Default: "flowcontrol.apiserver.k8s.io", Summary: "the group"},
			{Name: ParamVersion, Default: "v1beta3", Summary: "the version"},
			{Name: ParamResource, Default: "flowschemas", Summary: "the resource"},
			{Name: ParamRelease, Default: "1.36", Summary: "the minor of Kubernetes that does not serve it"},
			{Name: ParamObjects, Default: "1", Summary: "how many objects a list of it has"},
		},
	},
	{
		Name:    TalosRefused,
		Summary: "calls of the Talos API fail",
		Params: []Param{
			{Name: ParamMethod, Default: "*", Summary: "the method, such as MachineService/Read; a final * stands for any ending"},
			{Name: ParamResource, Summary: "only for this type of resource, where the method reads resources"},
			{Name: ParamCode, Default: "PermissionDenied", Values: []string{"PermissionDenied", "Unimplemented", "Unavailable", "FailedPrecondition", "InvalidArgument", "Internal"}, Summary: "the code"},
			{Name: ParamMessage, Default: "not authorized", Summary: "the message"},
			{Name: ParamWhen, Default: "before", Values: []string{"before", "after"}, Summary: "whether the call has done its work by then; calls without streams only"},
		},
	},
	{
		Name:    KubernetesRefused,
		Summary: "requests to the Kubernetes API fail",
		Params: []Param{
			{Name: ParamMethod, Default: "POST", Summary: "the HTTP method; * is any"},
			{Name: ParamResource, Default: "pods/eviction", Summary: "the resource, with its subresource if it has one; * is any"},
			{Name: ParamCode, Default: "403", Values: []string{"401", "403", "500", "503"}, Summary: "the HTTP status"},
		},
	},
	{
		Name:     PodStuck,
		Summary:  "pods that were deleted do not end",
		Standing: true,
	},
	{
		Name:     ForeignCordon,
		Summary:  "somebody cordons the Node, and uncordons it when the fault is cleared",
		Standing: true,
		Params:   []Param{{Name: ParamAnnotation, Summary: "an annotation to leave, as KEY=VALUE"}},
	},
	{
		Name:     ForeignNode,
		Summary:  "the cluster has a Node that is no Talos machine",
		Standing: true,
		Params:   []Param{{Name: ParamName, Default: "foreign-1", Summary: "its name"}},
	},
	{
		Name:     ServerCertificate,
		Summary:  "the server shows a certificate that clients must not accept",
		Standing: true,
		Params:   []Param{which, problem},
	},
	{
		Name:     ClientCertificate,
		Summary:  "the server refuses the certificates of its clients",
		Standing: true,
		Params: []Param{
			which, problem,
			{Name: ParamSerial, Summary: "only the certificate of this serial number in hexadecimal, whatever its problem; empty is all"},
		},
	},
	{
		Name:     SecretsStale,
		Summary:  "certificates and keys on the machine stay as they are when its machine config changes",
		Standing: true,
		Params: []Param{
			{Name: ParamAPI, Default: "both", Values: []string{"talos", "kube", "both"}, Summary: "whether those of the Talos API, or the files of Kubernetes"},
			{Name: ParamPath, Default: "*", Summary: "only these files, such as */kube-apiserver/apiserver.*; * stands for anything"},
		},
	},
	{
		Name:    SecretsLate,
		Summary: "static pods are restarted for new secrets before their files are written, and work with the old ones",
		Params:  []Param{{Name: ParamDelay, Default: "1s", Summary: "how much later the files are written"}},
	},
}

// whichImage is the parameter of faults with image pulls.
var whichImage = Param{Name: ParamImage, Default: "*", Summary: "only of this image with its tag; * stands for anything"}

// problem is the parameter of faults with certificates.
var problem = Param{
	Name: ParamProblem, Default: "expired", Values: []string{"expired", "not-yet-valid", "other-authority"}, Summary: "what is wrong with it",
}

// Lookup finds a definition by its name.
func Lookup(name string) (Definition, bool) {
	i := slices.IndexFunc(Definitions, func(d Definition) bool { return d.Name == name })
	if i < 0 {
		return Definition{}, false
	}
	return Definitions[i], true
}

// complete checks a fault against its definition and returns it with the defaults filled in.
func (d Definition) complete(f Fault) (Fault, error) {
	if d.Standing && f.Times != 0 {
		return f, fmt.Errorf("fault %s stands until it is cleared: it takes no number of times", d.Name)
	}
	for name := range f.Params {
		if !slices.ContainsFunc(d.Params, func(p Param) bool { return p.Name == name }) {
			return f, fmt.Errorf("fault %s has no parameter %q", d.Name, name)
		}
	}
	params := make(map[string]string, len(d.Params))
	for _, p := range d.Params {
		value, err := p.value(f.Params)
		if err != nil {
			return f, fmt.Errorf("fault %s: %w", d.Name, err)
		}
		params[p.Name] = value
	}
	f.Params = params
	return f, nil
}

func (p Param) value(given map[string]string) (string, error) {
	value, ok := given[p.Name]
	if !ok {
		return p.Default, nil
	}
	if len(p.Values) > 0 && !slices.Contains(p.Values, value) {
		return "", fmt.Errorf("%s=%s: want one of %s", p.Name, value, strings.Join(p.Values, ", "))
	}
	return value, nil
}
