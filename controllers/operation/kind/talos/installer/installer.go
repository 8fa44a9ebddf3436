// SPDX-License-Identifier: Apache-2.0

// Package installer reads the names of installer images. It is pure, and links next to nothing.
package installer

import (
	"fmt"
	"regexp"
)

// Image names the installer of a version for a platform, with a schematic and in the flavour that Secure Boot takes where the machine has
// booted so. factory is the host, and path if any, of the Image Factory.
func Image(factory, platform string, secureBoot bool, schematic, version string) string {
	flavour := ""
	if secureBoot {
		flavour = "-secureboot"
	}
	return fmt.Sprintf("%s/%s-installer%s/%s:%s", factory, platform, flavour, schematic, version)
}

var schematicInImage = regexp.MustCompile(`/([0-9a-f]{64})[:@]`)

// Schematic is the schematic in the name of an installer image, if it has one.
func Schematic(image string) string {
	if match := schematicInImage.FindStringSubmatch(image); match != nil {
		return match[1]
	}
	return ""
}
