// SPDX-License-Identifier: Apache-2.0

// Package installer reads the names of installer images. It is pure, and links next to nothing.
package installer

import "regexp"

var schematicInImage = regexp.MustCompile(`/([0-9a-f]{64})[:@]`)

// Schematic is the schematic in the name of an installer image, if it has one.
func Schematic(image string) string {
	if match := schematicInImage.FindStringSubmatch(image); match != nil {
		return match[1]
	}
	return ""
}
