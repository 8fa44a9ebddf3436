// SPDX-License-Identifier: Apache-2.0

// Package follow reads streams of changes for as long as it takes, while hubs and management APIs go and come back, and tells what happened
// in the order in which it did.
package follow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"ichor.maesh.dev/hub/cmd/ichor/dial"
)

const (
	// Patience is for how long nobody may answer.
	Patience = 10 * time.Minute

	// silence is how long a stream may say nothing. A hub sends heartbeats several times as often.
	silence = 90 * time.Second

	firstPause, longestPause = 250 * time.Millisecond, 10 * time.Second
)

// Receiver is a stream of messages.
type Receiver[M any] interface {
	Receive() bool
	Msg() *M
	Err() error
	Close() error
}

// Stream is a stream that is opened again whenever it ends, where it ended.
type Stream[M any] struct {
	// Open opens it after a token; an empty one is the beginning.
	Open func(ctx context.Context, token string) (Receiver[M], error)

	// Token is where a message lets the stream go on.
	Token func(*M) string

	// Handle gets every message once, in order. It says whether that was the last that matters.
	Handle func(*M) (done bool, err error)

	// Lost is called once when nobody answers any more, at the second try, and Back when somebody does. That another replica takes over is
	// nothing to tell.
	Lost func(error)
	Back func()
}

// Run reads until Handle has enough, ctx ends, going on is pointless, or nobody has answered for too long.
func (s *Stream[M]) Run(ctx context.Context) error {
	r := &reading[M]{Stream: s}
	for {
		heard, err := r.once(ctx)
		switch {
		case r.done:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case heard && (err == nil || connect.CodeOf(err) == connect.CodeUnauthenticated):
			continue // The hub ended it in good order, as it does with streams, and with credentials, that have become old. Others may be there.
		case final(err):
			return err
		case !r.lost.IsZero() && time.Since(r.lost) > Patience:
			return fmt.Errorf("nobody has answered for %s: %w", Patience, err)
		}
		r.lose(err)
		if !r.pause(ctx) {
			return ctx.Err()
		}
	}
}

// reading is where reading a stream has got to.
type reading[M any] struct {
	*Stream[M]

	token string
	done  bool
	lost  time.Time // When nobody answered any more; zero while somebody does.
	told  bool
	wait  time.Duration
}

// errSilent is the cause of a stream's end that has said nothing for too long.
var errSilent = errors.New("no heartbeat for " + silence.String())

// once reads until the stream ends, and says whether it heard anything.
func (r *reading[M]) once(until context.Context) (heard bool, err error) {
	// The deadline stays here: a hub that knew it would end the stream itself, a moment earlier or later.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(until))
	defer cancel(nil)
	defer context.AfterFunc(until, func() { cancel(until.Err()) })()
	watchdog := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer watchdog.Stop()
	stream, err := r.Open(ctx, r.token)
	if err != nil {
		return false, err
	}
	defer stream.Close() //nolint:errcheck // Err has told what there is to tell.
	for stream.Receive() {
		watchdog.Reset(silence)
		heard = true
		r.find()
		message := stream.Msg()
		if r.done, err = r.Handle(message); r.done || err != nil {
			r.done = true
			return heard, err
		}
		if token := r.Token(message); token != "" {
			r.token = token
		}
	}
	if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
		return heard, cause
	}
	return heard, stream.Err()
}

func (r *reading[M]) lose(err error) {
	if r.lost.IsZero() {
		r.lost, r.wait = time.Now(), firstPause
		return
	}
	if err == nil {
		err = errors.New("it ended the stream at once")
	}
	if !r.told {
		r.told = true
		r.Lost(err)
	}
}

func (r *reading[M]) find() {
	if r.lost.IsZero() {
		return
	}
	r.lost = time.Time{}
	if r.told {
		r.told = false
		r.Back()
	}
}

// pause waits before the next try, longer every time. It returns false if ctx ended.
func (r *reading[M]) pause(ctx context.Context) bool {
	timer := time.NewTimer(r.wait)
	defer timer.Stop()
	r.wait = min(r.wait*2, longestPause)
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// final says whether trying again cannot help.
func final(err error) bool {
	var signIn *dial.SignInError
	var fingerprint *dial.FingerprintError
	if dial.Untrusted(err) || errors.As(err, &signIn) || errors.As(err, &fingerprint) {
		return true
	}
	switch connect.CodeOf(err) { //nolint:exhaustive // The rest may pass.
	case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodePermissionDenied, connect.CodeUnauthenticated,
		connect.CodeUnimplemented, connect.CodeFailedPrecondition, connect.CodeOutOfRange:
		return true
	}
	return false
}
