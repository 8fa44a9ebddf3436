// SPDX-License-Identifier: Apache-2.0

package command

import (
	"testing"

	. "github.com/onsi/gomega"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// Which key is always said, and said once.
func TestRotateKeys(t *testing.T) {
	g := NewWithT(t)
	h, u := planning(t, &pb.Plan{
		Cluster: ref("default", "prod-1"), Kind: pb.OperationKind_OPERATION_KIND_KEY_ROTATION, Effect: pb.Effect_EFFECT_KEY_ROTATION,
		Confirmation: pb.Confirmation_CONFIRMATION_NAME,
	})
	for _, row := range []struct {
		args []string
		err  string
	}{
		{nil, "say which key: --key service-account, --key secretbox, --key both"},
		{[]string{"--key", "skeleton"}, `--key "skeleton" is not one of service-account, secretbox, both`},
		{[]string{"--key", "secretbox", "--key", "secretbox"}, "--key secretbox is there twice"},
		{[]string{"--key", "both,secretbox"}, `--key "both" is not one of`},
	} {
		r := u.ichor(with([]string{"cluster", "rotate-keys", "prod-1"}, row.args...)...)
		g.Expect(r.Code).To(Equal(2))
		g.Expect(r.Err).To(ContainSubstring(row.err))
	}
	g.Expect(of[*pb.PlanOperationRequest](h)).To(BeEmpty(), "nothing is asked before the command line is right")
	for i, row := range []struct{ args, keys []string }{
		{[]string{"--key", "both"}, []string{"ServiceAccount", "Secretbox"}},
		{[]string{"--key", "secretbox,service-account"}, []string{"Secretbox", "ServiceAccount"}},
		{[]string{"--key", "secretbox"}, []string{"Secretbox"}},
	} {
		r := u.ichor(with([]string{"cluster", "rotate-keys", "prod-1", "--confirm", "prod-1"}, row.args...)...)
		g.Expect(r.Code).To(BeZero(), r.Err)
		g.Expect(r.Err).To(ContainSubstring("rotate keys"))
		g.Expect(of[*pb.CreateOperationRequest](h)[i].GetOrder()).To(BeComparableTo(&pb.OperationOrder{
			Cluster: ref("default", "prod-1"), Kind: pb.OperationKind_OPERATION_KIND_KEY_ROTATION,
			Parameters: &pb.OperationParameters{Parameters: &pb.OperationParameters_KeyRotation{KeyRotation: &pb.KeyRotationParameters{Keys: row.keys}}},
		}, protoEqual))
	}
	r := u.ichor("operation", "plan", "rotate-keys", "prod-1", "--key", "secretbox")
	g.Expect(r.Code).To(BeZero(), r.Err)
}

// Without a stage it is the one under way that is confirmed.
func TestConfirm(t *testing.T) {
	g := NewWithT(t)
	h, u := planning(t, nil)
	op := &pb.Operation{Ref: ref("default", "keys"), Stage: "RefreshTokens"}
	delete(h.lay, "GetOperationResponse")
	h.answer(&pb.GetOperationResponse{Operation: op}, &pb.ConfirmOperationResponse{Operation: op, Changed: true})
	r := u.ichor("operation", "confirm", "keys")
	g.Expect(r.Code).To(BeZero(), r.Err)
	g.Expect(r.Err + r.Out).To(ContainSubstring("stage RefreshTokens is confirmed"))
	g.Expect(of[*pb.ConfirmOperationRequest](h)[0]).To(BeComparableTo(&pb.ConfirmOperationRequest{Ref: ref("default", "keys"), Stage: "RefreshTokens"}, protoEqual))
}
