// SPDX-License-Identifier: Apache-2.0

// Package identity compares the names and addresses that machines give. It is pure, and links next to nothing.
package identity

import (
	"net/netip"
	"strings"
)

// Address is an IP address in the one form in which the hub writes it, and whether a machine can be reached by it from elsewhere: not at an
// address that every machine has, or that means something on one link only. The rest of 127.0.0.0/8 is left: simulated nodes live there.
func Address(text string) (canonical string, usable bool) {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return "", false
	}
	addr = addr.Unmap()
	usable = addr != netip.MustParseAddr("127.0.0.1") && addr != netip.IPv6Loopback() && addr.Zone() == "" &&
		!addr.IsUnspecified() && !addr.IsMulticast() && !addr.IsLinkLocalUnicast()
	return addr.String(), usable
}

// Addresses are the usable ones of a list, in their order and in the one form.
func Addresses(list []string) []string {
	var usable []string
	for _, text := range list {
		if address, ok := Address(text); ok {
			usable = append(usable, address)
		}
	}
	return usable
}

// SameHost says whether two names may be of the same host: case does not matter, and one may be the short form of the other. Two full names
// are never the same because their first parts are.
func SameHost(a, b string) bool {
	a, b = normal(a), normal(b)
	if a == "" || b == "" {
		return false
	}
	return a == b || short(a, b) || short(b, a)
}

func normal(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// short says whether a is the first part of b.
func short(a, b string) bool {
	first, _, full := strings.Cut(b, ".")
	return full && a == first
}

// maxLabel leaves room for the name of a cluster, and for what tells machines of one name apart, in the 253 characters of a name.
const maxLabel = 180

// Label makes a part of an object's name of the name of a node: lower case, with dashes for dots and for all that may not be there.
func Label(name string) string {
	label := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, normal(name))
	label = strings.Trim(label, "-")
	return strings.TrimRight(label[:min(maxLabel, len(label))], "-")
}
