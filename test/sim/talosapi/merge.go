// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Field numbers that all messages which can be merged share.
const (
	fieldMessages protowire.Number = 1 // Of a unary answer.
	fieldMetadata protowire.Number = 1 // Of each of the messages, and of a streamed answer.
)

// appendHostname says in an answer which node it comes from. Two occurrences of a protobuf field merge, so the metadata can
// be appended without a look at the rest.
func appendHostname(streaming bool, resp []byte, hostname string) ([]byte, error) {
	metadata, err := metadataField(&common.Metadata{Hostname: hostname})
	if err != nil {
		return nil, err
	}
	if streaming {
		return append(resp, metadata...), nil
	}
	return appendToMessages(resp, metadata)
}

func appendToMessages(resp, suffix []byte) ([]byte, error) {
	var out []byte
	for len(resp) > 0 {
		number, kind, tag := protowire.ConsumeTag(resp)
		if tag < 0 {
			return nil, fmt.Errorf("answer cannot be merged: %w", protowire.ParseError(tag))
		}
		length := protowire.ConsumeFieldValue(number, kind, resp[tag:])
		if length < 0 {
			return nil, fmt.Errorf("answer cannot be merged: %w", protowire.ParseError(length))
		}
		if number == fieldMessages && kind == protowire.BytesType {
			message, _ := protowire.ConsumeBytes(resp[tag:])
			out = appendField(out, fieldMessages, append(append([]byte(nil), message...), suffix...))
		} else {
			out = append(out, resp[:tag+length]...)
		}
		resp = resp[tag+length:]
	}
	return out, nil
}

// errorReply makes an answer that carries nothing but a node's error.
func errorReply(streaming bool, hostname string, cause error) ([]byte, error) {
	reply, err := metadataField(&common.Metadata{
		Hostname: hostname,
		Error:    cause.Error(),
		Status:   status.Convert(cause).Proto(),
	})
	if err != nil || streaming {
		return reply, err
	}
	return appendField(nil, fieldMessages, reply), nil
}

func metadataField(m *common.Metadata) ([]byte, error) {
	data, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("marshal metadata: %w", err)
	}
	return appendField(nil, fieldMetadata, data), nil
}

func appendField(out []byte, number protowire.Number, data []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(out, number, protowire.BytesType), data)
}
