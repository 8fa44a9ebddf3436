// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
)

func TestCommandPage(t *testing.T) {
	g := NewWithT(t)
	text := string(commandPage())
	for _, part := range []string{
		"## Flags of every command", "### ichor upgrade talos\n\n    ichor upgrade talos VERSION\n", "--max-unavailable", "## ichor audit\n", "### ichor completion bash",
		"Also: `op`, `operations`.",
	} {
		g.Expect(text).To(ContainSubstring(part))
	}
	g.Expect(strings.Count(text, "--kubeconfig string")).To(Equal(1), "what every command has is said once")
	g.Expect(strings.Count(text, "```") % 2).To(BeZero())
}

func TestProtocolPage(t *testing.T) {
	g := NewWithT(t)
	file := &descriptorpb.FileDescriptorProto{
		Name: proto.String("ichor/v1/x.proto"), Package: proto.String("ichor.v1"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("Thing"), Field: []*descriptorpb.FieldDescriptorProto{
			{Name: proto.String("size"), Number: proto.Int32(1), Type: descriptorpb.FieldDescriptorProto_TYPE_INT32.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum(), JsonName: proto.String("size")},
			{Name: proto.String("inner"), Number: proto.Int32(2), Type: descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), TypeName: proto.String(".ichor.v1.Thing"), JsonName: proto.String("inner")},
		}}},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("Things"), Method: []*descriptorpb.MethodDescriptorProto{{
			Name: proto.String("Watch"), InputType: proto.String(".ichor.v1.Thing"), OutputType: proto.String(".ichor.v1.Thing"), ServerStreaming: proto.Bool(true),
		}}}},
		SourceCodeInfo: &descriptorpb.SourceCodeInfo{Location: []*descriptorpb.SourceCodeInfo_Location{
			{Path: []int32{4, 0}, Span: []int32{1, 0, 1}, LeadingComments: proto.String(" Thing is\n a thing.\n")},
			{Path: []int32{4, 0, 2, 0}, Span: []int32{2, 0, 1}, LeadingComments: proto.String(" a|b\n")},
		}},
	}
	image, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{file}})
	g.Expect(err).NotTo(HaveOccurred())
	page, err := protocolPage(image)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(page)).To(And(
		ContainSubstring("### Thing\n\nThing is a thing.\n"), ContainSubstring("| `size` | list of int32 | a\\|b |\n"),
		ContainSubstring("| `inner` | [Thing](#thing) |  |\n"), ContainSubstring("| `Watch` | [Thing](#thing) | stream of [Thing](#thing) |  |\n"),
	))
	_, err = protocolPage([]byte("nonsense"))
	g.Expect(err).To(MatchError(ContainSubstring("reading the protocol")))
}

func TestObjectsPage(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "crd.yaml")
	g.Expect(os.WriteFile(file, []byte(`
spec:
  group: example.com
  names: {kind: Thing}
  scope: Namespaced
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        description: Thing is a thing.
        properties:
          metadata: {type: object}
          spec:
            description: What is wanted.
            required: [mode]
            properties:
              mode: {type: string, enum: [A, B], description: "a or b"}
              many: {type: array, items: {type: object, properties: {at: {type: string, format: date-time}}}}
              labels: {type: object, additionalProperties: {type: string}}
              size: {x-kubernetes-int-or-string: true}
`), 0o600)).To(Succeed())
	page, err := objectsPage([]string{file})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(page)).To(HaveSuffix("## Thing\n\n`example.com/v1`, namespaced.\n\nThing is a thing.\n\n### Thing.spec\n\nWhat is wanted.\n\n| field | type | |\n|---|---|---|\n" +
		"| `labels` | map to string |  |\n| `many` | list of object |  |\n| `many[].at` | string (date-time) |  |\n| `mode` | one of `A`, `B` | a or b *Required.* |\n| `size` | number or string |  |\n"))
}
