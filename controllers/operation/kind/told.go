// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"errors"

	"google.golang.org/grpc/status"

	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/providers/talos"
)

// Told is the error of a call that gave a machine a config, without what is a secret in the configs: machines repeat what they were given.
func Told(err error, configs ...[]byte) error {
	if err == nil || !talos.IsStatus(err) {
		return err
	}
	var answer interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &answer) {
		return errors.New("the machine answers what cannot be told")
	}
	code, text := answer.GRPCStatus().Code(), answer.GRPCStatus().Message()
	return status.Error(code, machineconfig.Cleaned(text, configs...))
}
