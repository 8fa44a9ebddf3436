// SPDX-License-Identifier: Apache-2.0

// Package table holds requests to the services of a hub and what they answer, so that every way to speak to a hub can be held to the same.
package table

import (
	"context"
	"errors"
	"testing"

	"connectrpc.com/connect"
	"github.com/onsi/gomega"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"ichor.maesh.dev/hub/hub/service"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
)

// Clients speak to one server.
type Clients struct {
	Operations ichorv1alpha1connect.OperationServiceClient
	Clusters   ichorv1alpha1connect.ClusterServiceClient
	Hub        ichorv1alpha1connect.HubServiceClient
	Audit      ichorv1alpha1connect.AuditServiceClient
}

// Transport serves a server for the time of a test, and speaks to it.
type Transport func(t *testing.T, server *service.Server) Clients

// Row is a request, and what it answers.
type Row struct {
	Name string

	// Given makes the world; nil is NewWorld().
	Given func() *World

	// Call sends the request. Where it sends several, the last one's answer counts.
	Call func(context.Context, Clients) (proto.Message, error)

	// Code is that of the error; zero means that there is none. Message is its text, Gates are those of its refusals, in order.
	Code    connect.Code
	Message string
	Gates   []string

	// Partly is the detail of an error that had written something.
	Partly *pb.PartlyDone

	// Writes are those that the management API saw, in order.
	Writes []string

	// Check looks at the answer, nil if there is none, and at what has become of the world.
	Check func(gomega.Gomega, proto.Message, *World)
}

// Run runs the table over a transport. It returns every answer as text, by the name of its row, so that transports can be compared.
func Run(t *testing.T, transport Transport) map[string]string {
	t.Helper()
	answers := map[string]string{}
	for _, row := range Rows() {
		t.Run(row.Name, func(t *testing.T) {
			answers[row.Name] = row.run(t, transport)
		})
	}
	return answers
}

func (row Row) run(t *testing.T, transport Transport) string {
	t.Helper()
	g := gomega.NewWithT(t)
	world := NewWorld()
	if row.Given != nil {
		world = row.Given()
	}
	response, err := row.Call(t.Context(), transport(t, world.Server()))
	g.Expect(world.Writes()).To(gomega.Equal(row.Writes), "%v", err)
	if row.Code != 0 {
		row.failed(g, err)
	} else {
		g.Expect(err).NotTo(gomega.HaveOccurred())
	}
	if row.Check != nil {
		row.Check(g, response, world)
	}
	if err != nil {
		return err.Error()
	}
	return protojson.Format(response)
}

func (row Row) failed(g gomega.Gomega, err error) {
	g.Expect(err).To(gomega.HaveOccurred())
	g.Expect(connect.CodeOf(err).String()).To(gomega.Equal(row.Code.String()), err.Error())
	var answer *connect.Error
	g.Expect(errors.As(err, &answer)).To(gomega.BeTrue())
	g.Expect(answer.Message()).To(gomega.Equal(row.Message))
	var gates []string
	var partly *pb.PartlyDone
	for _, detail := range answer.Details() {
		value, err := detail.Value()
		g.Expect(err).NotTo(gomega.HaveOccurred())
		switch message := value.(type) {
		case *pb.Refusals:
			for _, refusal := range message.GetRefusals() {
				g.Expect(refusal.GetMessage()).NotTo(gomega.BeEmpty())
				g.Expect(len(refusal.GetMessage())).To(gomega.BeNumerically("<=", 256))
				gates = append(gates, refusal.GetGate())
			}
		case *pb.PartlyDone:
			partly = message
		}
	}
	g.Expect(gates).To(gomega.Equal(row.Gates))
	g.Expect(proto.Equal(partly, row.Partly)).To(gomega.BeTrue(), "%v", partly)
}

// unwrap is the message of an answer.
func unwrap[T any, M interface {
	*T
	proto.Message
}](response *connect.Response[T], err error) (proto.Message, error) {
	if err != nil {
		return nil, err
	}
	return M(response.Msg), nil
}
