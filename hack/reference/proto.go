// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// ours is where the protocol's own files are.
const ours = "ichor/"

// protocolPage describes every service, message and enum of an image.
func protocolPage(image []byte) ([]byte, error) {
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(image, set); err != nil {
		return nil, fmt.Errorf("reading the protocol: %w", err)
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return nil, fmt.Errorf("reading the protocol: %w", err)
	}
	var found []protoreflect.FileDescriptor
	files.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		if strings.HasPrefix(file.Path(), ours) {
			found = append(found, file)
		}
		return true
	})
	if len(found) == 0 {
		return nil, fmt.Errorf("the protocol has no file below %s", ours)
	}
	slices.SortFunc(found, func(a, b protoreflect.FileDescriptor) int { return strings.Compare(a.Path(), b.Path()) })
	p := newPage("The protocol", "Every service, message and enum of package `ichor.v1alpha1`. Connect, gRPC, gRPC-Web and JSON over HTTP serve them alike: a procedure is at\n"+
		"`/ichor.v1alpha1.SERVICE/PROCEDURE`. Commands print messages with the names below (`-o json`); JSON over HTTP takes them, and the names in camel case.")
	for _, file := range found {
		each(file.Services(), func(s protoreflect.ServiceDescriptor) { service(p, s) })
	}
	for _, file := range found {
		each(file.Messages(), func(m protoreflect.MessageDescriptor) { message(p, m) })
		each(file.Enums(), func(e protoreflect.EnumDescriptor) { enum(p, e) })
	}
	return p.Bytes(), nil
}

// list is what protoreflect has for each kind of descriptor.
type list[D any] interface {
	Len() int
	Get(int) D
}

func each[D any](all list[D], do func(D)) {
	for i := range all.Len() {
		do(all.Get(i))
	}
}

func service(p *page, s protoreflect.ServiceDescriptor) {
	p.say("\n## %s\n\n%s\n\n| procedure | takes | answers | |\n|---|---|---|---|\n", s.Name(), comment(s))
	each(s.Methods(), func(m protoreflect.MethodDescriptor) {
		answer := link(m.Output())
		if m.IsStreamingServer() {
			answer = "stream of " + answer
		}
		note := cell(comment(m))
		if options, ok := m.Options().(*descriptorpb.MethodOptions); ok && options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS {
			note += " *Reads only.*"
		}
		p.say("| `%s` | %s | %s | %s |\n", m.Name(), link(m.Input()), answer, note)
	})
}

func message(p *page, m protoreflect.MessageDescriptor) {
	if m.IsMapEntry() {
		return
	}
	p.say("\n### %s\n", name(m))
	if text := comment(m); text != "" {
		p.say("\n%s\n", text)
	}
	if m.Fields().Len() > 0 {
		p.say("\n| field | type | |\n|---|---|---|\n")
	}
	each(m.Fields(), func(f protoreflect.FieldDescriptor) {
		note := cell(comment(f))
		if one := f.ContainingOneof(); one != nil && !one.IsSynthetic() {
			note = strings.TrimSpace(note + fmt.Sprintf(" One of %#q.", one.Name()))
		}
		p.say("| `%s` | %s | %s |\n", f.Name(), fieldType(f), note)
	})
	each(m.Messages(), func(inner protoreflect.MessageDescriptor) { message(p, inner) })
	each(m.Enums(), func(inner protoreflect.EnumDescriptor) { enum(p, inner) })
}

func enum(p *page, e protoreflect.EnumDescriptor) {
	p.say("\n### %s\n\n%s\n\n| value | |\n|---|---|\n", name(e), comment(e))
	each(e.Values(), func(v protoreflect.EnumValueDescriptor) {
		if v.Number() != 0 {
			p.say("| `%s` | %s |\n", v.Name(), cell(comment(v)))
		}
	})
}

func fieldType(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return fmt.Sprintf("map of %s to %s", fieldType(f.MapKey()), fieldType(f.MapValue()))
	case f.IsList():
		return "list of " + single(f)
	}
	return single(f)
}

func single(f protoreflect.FieldDescriptor) string {
	switch {
	case f.Message() != nil:
		return link(f.Message())
	case f.Enum() != nil:
		return link(f.Enum())
	}
	return f.Kind().String()
}

// name is what a descriptor is called within its package.
func name(d protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(d.FullName()), string(d.ParentFile().Package())+".")
}

func link(d protoreflect.Descriptor) string {
	if !strings.HasPrefix(d.ParentFile().Path(), ours) {
		return string(d.FullName())
	}
	anchor := strings.ToLower(strings.ReplaceAll(name(d), ".", ""))
	return fmt.Sprintf("[%s](#%s)", name(d), anchor)
}

// comment is what the file says about something, in one line.
func comment(d protoreflect.Descriptor) string {
	return plain(strings.Join(strings.Fields(d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments), " "))
}

// cell keeps a text from ending the cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// plain keeps a text from becoming HTML.
func plain(text string) string { return strings.ReplaceAll(text, "<", "&lt;") }
