// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/test/framework"
)

// Clusterctl is the real client, with nothing of the user's and without a network.
type Clusterctl struct {
	// Dir has its configuration, which is empty.
	Dir string
}

// Run runs clusterctl to its end, and returns what it prints and what it says about that.
func (c Clusterctl) Run(ctx context.Context, args ...string) (string, error) {
	binary, err := framework.Binary("clusterctl")
	if err != nil {
		return "", err
	}
	config := filepath.Join(c.Dir, "clusterctl.yaml")
	if err := os.WriteFile(config, []byte("providers: []\n"), 0o600); err != nil {
		return "", fmt.Errorf("writing the configuration of clusterctl: %w", err)
	}
	cmd := exec.CommandContext(ctx, binary, append(args, "--config", config)...)
	cmd.Env = []string{
		"HOME=" + c.Dir, "XDG_CONFIG_HOME=" + c.Dir, "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "GOPROXY=off", "HTTPS_PROXY=http://127.0.0.1:1",
		"NO_PROXY=127.0.0.1,localhost",
	}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("clusterctl %v: %w\n%s%s", args, err, &out, &said)
	}
	return out.String() + said.String(), nil
}

// inventory is the definition of what clusterctl keeps about the providers that it has installed. It asks for it before it moves anything.
func inventory() *apiextensionsv1.CustomResourceDefinition {
	const group = "clusterctl.cluster.x-k8s.io"
	anything := &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}}
	return &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "providers." + group, Labels: map[string]string{clusterctlLabel: ""}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Kind: "Provider", ListKind: "ProviderList", Singular: "provider", Plural: "providers"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1alpha3", Served: true, Storage: true, Schema: anything}},
		},
	}
}
