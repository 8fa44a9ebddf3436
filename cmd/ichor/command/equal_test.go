// SPDX-License-Identifier: Apache-2.0

package command

import (
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
)

// protoEqual compares messages by what they say.
var protoEqual cmp.Option = protocmp.Transform()
