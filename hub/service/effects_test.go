// SPDX-License-Identifier: Apache-2.0

package service

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"strconv"
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/controllers/operation/plan"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// planEffects are the constants of type plan.Effect, as the source has them.
func planEffects(g *WithT) []plan.Effect {
	file, err := parser.ParseFile(gotoken.NewFileSet(), "../../controllers/operation/plan/plan.go", nil, parser.SkipObjectResolution)
	g.Expect(err).NotTo(HaveOccurred())
	var found []plan.Effect
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, named := spec.Type.(*ast.Ident); named && kind.Name == "Effect" {
			for _, value := range spec.Values {
				text, err := strconv.Unquote(value.(*ast.BasicLit).Value) //nolint:forcetypeassert // Effects are words.
				g.Expect(err).NotTo(HaveOccurred())
				found = append(found, plan.Effect(text))
			}
		}
		return false
	})
	return found
}

// No effect becomes "unspecified" on its way to a client, and no two become one.
func TestEveryEffectHasAMessage(t *testing.T) {
	g := NewWithT(t)
	known := planEffects(g)
	g.Expect(known).To(ContainElements(plan.EffectNone, plan.EffectReboot))
	sent := map[pb.Effect]plan.Effect{}
	for _, effect := range known {
		g.Expect(effects).To(HaveKey(effect))
		g.Expect(effects[effect]).NotTo(Equal(pb.Effect_EFFECT_UNSPECIFIED), string(effect))
		g.Expect(sent).NotTo(HaveKey(effects[effect]), string(effect))
		sent[effects[effect]] = effect
	}
	g.Expect(effects).To(HaveLen(len(known)))
}
