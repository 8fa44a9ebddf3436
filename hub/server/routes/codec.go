// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// unknownField finds the field in an error of protojson, which has no type for it, and puts in spaces that differ from build to build.
var unknownField = regexp.MustCompile(`\(line (\d+:\d+)\):\s+unknown field "(.{0,64})`)

// strictJSON is JSON that has no fields but those that there are. Who misspells "validateOnly" does not mean to change something. It implements
// connect.Codec, with what Connect wants of one for GET requests and for writing without a copy.
type strictJSON struct{ name string }

// Name implements connect.Codec.
func (c strictJSON) Name() string { return c.name }

// Marshal implements connect.Codec.
func (c strictJSON) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend marshals to the end of something.
func (c strictJSON) MarshalAppend(to []byte, message any) ([]byte, error) {
	m, err := messageOf(message)
	if err != nil {
		return nil, err
	}
	return protojson.MarshalOptions{}.MarshalAppend(to, m)
}

// MarshalStable marshals the same to the same: protojson puts in spaces that differ from build to build.
func (c strictJSON) MarshalStable(message any) ([]byte, error) {
	text, err := c.Marshal(message)
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return nil, fmt.Errorf("encoding %T: %w", message, err)
	}
	return compact.Bytes(), nil
}

// IsBinary says that the text can stand where only text can.
func (c strictJSON) IsBinary() bool { return false }

// Unmarshal implements connect.Codec.
func (c strictJSON) Unmarshal(text []byte, message any) error {
	m, err := messageOf(message)
	if err != nil {
		return err
	}
	if len(text) == 0 {
		return errors.New("the body is empty: want {} where there is nothing to say")
	}
	err = protojson.Unmarshal(text, m)
	if err == nil {
		return nil
	}
	if found := unknownField.FindStringSubmatch(err.Error()); found != nil {
		return fmt.Errorf("field %q at %s: there is none of that name in %s, nor in what it holds", trimQuote(found[2]), found[1], m.ProtoReflect().Descriptor().Name())
	}
	return err
}

// trimQuote ends a name where it does: it may be cut off before that.
func trimQuote(name string) string {
	before, _, _ := bytes.Cut([]byte(name), []byte(`"`))
	return string(before)
}

func messageOf(message any) (proto.Message, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", message)
	}
	return m, nil
}
