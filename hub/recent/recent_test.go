// SPDX-License-Identifier: Apache-2.0

package recent_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/hub/recent"
)

type clock struct{}

func (clock) Now() time.Time { return time.Now() }

func TestOneQuestionForAllWhoAskAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		answers := recent.New[string](10, clock{})
		var asked atomic.Int32
		reply := make(chan struct{})
		ask := func(ctx context.Context) (string, time.Duration, error) {
			asked.Add(1)
			select {
			case <-reply:
				return "yes", 5 * time.Second, nil
			case <-ctx.Done():
				return "", 0, ctx.Err()
			}
		}
		impatient, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := answers.Ask(impatient, "q", ask)
			left <- err
		}()
		synctest.Wait()
		got := make(chan string, 20)
		for range cap(got) {
			go func() {
				answer, err := answers.Ask(t.Context(), "q", ask)
				g.Expect(err).NotTo(HaveOccurred())
				got <- answer
			}()
		}
		synctest.Wait()
		leave()
		g.Expect(<-left).To(MatchError(context.Canceled))
		close(reply)
		for range cap(got) {
			g.Expect(<-got).To(Equal("yes"), "who asked first has left, and the others get their answer")
		}
		g.Expect(asked.Load()).To(Equal(int32(1)))

		time.Sleep(4 * time.Second) //nolint:forbidigo // The clock is the bubble's.
		_, err := answers.Ask(t.Context(), "q", ask)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(asked.Load()).To(Equal(int32(1)))
		time.Sleep(2 * time.Second) //nolint:forbidigo // Likewise.
		_, err = answers.Ask(t.Context(), "q", ask)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(asked.Load()).To(Equal(int32(2)), "its time is over")
	})
}

func TestFailuresAreNotKept(t *testing.T) {
	g := NewWithT(t)
	answers := recent.New[bool](10, clock{})
	fail := errors.New("the API is away")
	_, err := answers.Ask(t.Context(), "q", func(context.Context) (bool, time.Duration, error) { return true, time.Hour, fail })
	g.Expect(err).To(MatchError(fail))
	answer, err := answers.Ask(t.Context(), "q", func(context.Context) (bool, time.Duration, error) { return true, time.Hour, nil })
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer).To(BeTrue())
}

func TestOnlySoManyAreKept(t *testing.T) {
	g := NewWithT(t)
	answers := recent.New[int](2, clock{})
	asked := 0
	ask := func(context.Context) (int, time.Duration, error) { asked++; return asked, time.Hour, nil }
	for i := range 3 {
		_, err := answers.Ask(t.Context(), strconv.Itoa(i), ask)
		g.Expect(err).NotTo(HaveOccurred())
	}
	answer, err := answers.Ask(t.Context(), "0", ask)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer).To(Equal(4), "the oldest has made room")
}
