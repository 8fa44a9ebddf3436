// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
)

// Maintenance opens a connection of its own: a machine in maintenance mode has no certificate that anybody could know, and asks for none.
// Nothing is sent there but this one question.
func (c *connection) Maintenance(ctx context.Context, address string) (string, error) {
	insecure, err := client.New(ctx, client.WithMaintenanceMode(address, nil))
	if err != nil {
		return "", fmt.Errorf("connecting to %s in maintenance mode: %w", address, err)
	}
	defer insecure.Close() //nolint:errcheck // Nothing is under way any more.
	system, err := get[*hardware.SystemInformation](
		ctx, &connection{client: insecure}, hardware.NamespaceName, hardware.SystemInformationType, hardware.SystemInformationID)
	if err != nil {
		return "", fmt.Errorf("machine at %s in maintenance mode: %w", address, err)
	}
	if system == nil {
		return "", nil
	}
	return system.TypedSpec().UUID, nil
}
