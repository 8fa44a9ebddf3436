// SPDX-License-Identifier: Apache-2.0

package service

import (
	"slices"
	"strings"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// caAuthorities are what the definition of a TalosOperation lets through.
var caAuthorities = []v1alpha1.CAAuthority{v1alpha1.TalosCA, v1alpha1.KubernetesCA}

// caRotationOf are the parameters of an order to rotate certificate authorities.
func caRotationOf(order *pb.OperationOrder, kind v1alpha1.OperationKind) (*v1alpha1.CARotationParameters, error) {
	const field = "order.parameters.ca_rotation"
	rotation := order.GetParameters().GetCaRotation()
	switch {
	case kind != v1alpha1.CARotationKind && rotation == nil:
		return nil, nil
	case kind != v1alpha1.CARotationKind:
		return nil, &InvalidError{Field: field, Value: strings.Join(rotation.GetAuthorities(), ","), Allowed: "goes with kind ca-rotation only"}
	case len(rotation.GetAuthorities()) == 0:
		return nil, &InvalidError{Field: field + ".authorities", Value: "", Allowed: "one or both of " + commas(caAuthorities)}
	}
	made := &v1alpha1.CARotationParameters{}
	for _, text := range rotation.GetAuthorities() {
		authority := v1alpha1.CAAuthority(text)
		switch {
		case !slices.Contains(caAuthorities, authority):
			return nil, &InvalidError{Field: field + ".authorities", Value: text, Allowed: "one or both of " + commas(caAuthorities)}
		case slices.Contains(made.Authorities, authority):
			return nil, &InvalidError{Field: field + ".authorities", Value: text, Allowed: "each once"}
		}
		made.Authorities = append(made.Authorities, authority)
	}
	return made, nil
}

// caRotationWords are the words of the command that rotates authorities. The cluster is its argument.
func caRotationWords(spec v1alpha1.TalosOperationSpec) []string {
	return []string{"cluster", "rotate-ca", spec.ClusterName, "--authority", strings.ToLower(strings.ReplaceAll(commas(spec.CARotation.Authorities), " ", ""))}
}
