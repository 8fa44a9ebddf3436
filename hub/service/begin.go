// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reader begins a call that writes nothing. live reads past every cache.
func (s *Server) reader(ctx context.Context) (service *Service, live client.Client, err error) {
	session, err := s.Backend.Session(ctx)
	if err != nil {
		return nil, nil, err
	}
	return s.as(session, session.Client), liveOf(session), nil
}

// writer begins a call that may write. What it is about is read past every cache.
func (s *Server) writer(ctx context.Context) (*Service, error) {
	session, err := s.Backend.Session(ctx)
	if err != nil {
		return nil, err
	}
	return s.as(session, liveOf(session)), nil
}

func (s *Server) as(session *Session, c client.Client) *Service {
	return &Service{Client: c, Rights: session.Rights, User: session.Caller.Name, Now: s.Now, Verifier: s.Verifier, Share: s.Share, Installation: s.Installation}
}

func liveOf(session *Session) client.Client {
	if session.Live != nil {
		return session.Live
	}
	return session.Client
}
