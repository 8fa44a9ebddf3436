// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"slices"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// rotatedKeys are what the definition of a TalosOperation lets through.
var rotatedKeys = []v1alpha1.RotatedKey{v1alpha1.ServiceAccountKey, v1alpha1.SecretboxKey}

// keyRotationOf are the parameters of an order to rotate keys.
func keyRotationOf(order *pb.OperationOrder, kind v1alpha1.OperationKind) (*v1alpha1.KeyRotationParameters, error) {
	const field = "order.parameters.key_rotation"
	rotation := order.GetParameters().GetKeyRotation()
	switch {
	case kind != v1alpha1.KeyRotationKind && rotation == nil:
		return nil, nil
	case kind != v1alpha1.KeyRotationKind:
		return nil, &InvalidError{Field: field, Value: fmt.Sprint(rotation.GetKeys()), Allowed: "goes with kind key-rotation only"}
	case len(rotation.GetKeys()) == 0:
		return nil, &InvalidError{Field: field + ".keys", Allowed: "one or more of " + commas(rotatedKeys)}
	}
	made := &v1alpha1.KeyRotationParameters{}
	for i, text := range rotation.GetKeys() {
		key := v1alpha1.RotatedKey(text)
		switch {
		case !slices.Contains(rotatedKeys, key):
			return nil, &InvalidError{Field: fmt.Sprintf("%s.keys[%d]", field, i), Value: text, Allowed: "one of " + commas(rotatedKeys)}
		case slices.Contains(made.Keys, key):
			return nil, &InvalidError{Field: fmt.Sprintf("%s.keys[%d]", field, i), Value: text, Allowed: "each key once"}
		}
		made.Keys = append(made.Keys, key)
	}
	return made, nil
}

// keyRotationWords are the words of the command that rotates keys. The cluster is its argument.
func keyRotationWords(spec v1alpha1.TalosOperationSpec) []string {
	words := []string{"cluster", "rotate-keys", spec.ClusterName}
	for _, key := range spec.KeyRotation.Keys {
		words = append(words, "--key", flagWord(key))
	}
	return words
}
