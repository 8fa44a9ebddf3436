// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"fmt"
	"net"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/kubernetes/pkg/controlplane/apiserver/options"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"
	"k8s.io/kubernetes/plugin/pkg/admission/serviceaccount"
)

// auditMegabytes is how large the audit log gets before another file is begun, and auditFiles how many such files are kept from before:
// a gigabyte in all, where kube-apiserver's ten would surprise whoever gave a data directory a disk.
const auditMegabytes, auditFiles = 100, 10

// serviceAccountIssuer is the issuer that clusters use by default; tools expect it.
const serviceAccountIssuer = "https://kubernetes.default.svc.cluster.local"

// admissionPlugins are the ones that mean something where there are no pods and no nodes.
var admissionPlugins = sets.New(
	lifecycle.PluginName,         // Nothing is created in a namespace that is going away.
	serviceaccount.PluginName,    // Secrets of service accounts name an existing account.
	mutatingwebhook.PluginName,   // Cluster API's defaulting.
	validatingwebhook.PluginName, // Cluster API's validation.
	mutatingpolicy.PluginName,    // The same without a server.
	validatingpolicy.PluginName,  // Who may start which kind of operation.
	resourcequota.PluginName,     // Object counts per namespace.
)

// newOptions translates cfg to the options of an API server and completes them.
func newOptions(ctx context.Context, cfg Config) (options.CompletedOptions, error) {
	o := options.NewOptions()
	o.Etcd.StorageConfig.Transport.ServerList = []string{etcdEndpoint}
	o.Features.EnableProfiling = false
	o.Admission.GenericAdmission.DefaultOffPlugins = sets.New(kubeoptions.AllOrderedPlugins...).Difference(admissionPlugins)
	setServing(o, cfg)
	setIdentity(o, cfg)
	setAudit(o, cfg)

	completed, err := o.Complete(ctx, nil, []net.IP{})
	if err != nil {
		return options.CompletedOptions{}, fmt.Errorf("completing API server options: %w", err)
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return options.CompletedOptions{}, fmt.Errorf("validating API server options: %w", utilerrors.NewAggregate(errs))
	}
	return completed, nil
}

func setServing(o *options.Options, cfg Config) {
	o.SecureServing.Listener = cfg.Listener
	o.SecureServing.ServerCert.CertKey.CertFile = cfg.ServingCertFile
	o.SecureServing.ServerCert.CertKey.KeyFile = cfg.ServingKeyFile
	if addr, ok := cfg.Listener.Addr().(*net.TCPAddr); ok {
		// The advertised address is derived from it before the listener is looked at.
		o.SecureServing.BindAddress, o.SecureServing.BindPort = addr.IP, addr.Port
	}
}

// setIdentity says who is who: client certificates and service account tokens, judged by RBAC alone.
func setIdentity(o *options.Options, cfg Config) {
	authn := o.Authentication
	authn.Anonymous.Allow = false
	authn.ClientCert.ClientCA = cfg.ClientCAFile
	authn.ServiceAccounts.Issuers = []string{serviceAccountIssuer}
	authn.ServiceAccounts.KeyFiles = []string{cfg.ServiceAccountKeyFile}
	authn.ServiceAccounts.OptionalTokenGetter = newTokenGetter
	o.ServiceAccountSigningKeyFile = cfg.ServiceAccountKeyFile
	o.Authorization.Modes = []string{"RBAC"}
}

// setAudit has requests written down. The log is written before a request is answered, so that nobody acts unseen.
func setAudit(o *options.Options, cfg Config) {
	o.Audit.PolicyFile = cfg.AuditPolicyFile
	o.Audit.LogOptions.Path = cfg.AuditLogFile
	o.Audit.LogOptions.MaxSize, o.Audit.LogOptions.MaxBackups = auditMegabytes, auditFiles
}
