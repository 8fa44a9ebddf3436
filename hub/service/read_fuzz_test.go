// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// Whatever somebody asks for is answered, or refused as what they asked for. A page is never larger than it may be.
func FuzzListOperations(f *testing.F) {
	w := newFleetWorld(&testing.T{}, someOperations()...)
	first, err := w.ListOperations(context.Background(), connect.NewRequest(&pb.ListOperationsRequest{OrderBy: "name", Page: &pb.Page{Size: 1}}))
	NewWithT(f).Expect(err).NotTo(HaveOccurred())
	f.Add("create_time desc", first.Msg.GetNextPageToken(), "team in (x,y)", "up", int32(2))
	f.Add("name", first.Msg.GetNextPageToken(), "", "", int32(1))
	f.Add("attention", "bnVsbA", "!", "\xff", int32(-1))
	f.Fuzz(func(t *testing.T, order, token, selector, text string, size int32) {
		g := NewWithT(t)
		answer, err := w.ListOperations(t.Context(), connect.NewRequest(&pb.ListOperationsRequest{
			OrderBy: order, Page: &pb.Page{Size: size, Token: token}, Filter: &pb.OperationFilter{LabelSelector: selector, Text: text},
		}))
		if err != nil {
			g.Expect(connect.CodeOf(err)).To(Equal(connect.CodeInvalidArgument))
			return
		}
		most := cmp.Or(int(size), defaultPageSize)
		g.Expect(len(answer.Msg.GetOperations())).To(BeNumerically("<=", min(int(answer.Msg.GetTotalSize()), most)))
	})
}

// Whatever token somebody goes on from, they get all that there is: from there, or anew.
func FuzzResumeToken(f *testing.F) {
	w := newFleetWorld(&testing.T{}, someOperations()...)
	enough := errors.New("enough")
	watch := func(ctx context.Context, token string) (heard []string, last string, err error) {
		err = w.watchOperations(ctx, &pb.WatchOperationsRequest{ResumeToken: token}, func(r *pb.WatchOperationsResponse) error {
			heard, last = append(heard, said(r)), r.GetResumeToken()
			if r.GetSynced() != nil {
				return enough
			}
			return nil
		})
		return heard, last, err
	}
	_, token, _ := watch(context.Background(), "")
	f.Add(token)
	f.Add("")
	f.Add(token + "x")
	f.Add(":18446744073709551615:")
	f.Fuzz(func(t *testing.T, from string) {
		g := NewWithT(t)
		heard, _, err := watch(t.Context(), from)
		g.Expect(err).To(MatchError(enough))
		whole := []string{"boot", "up-1", "up-2", "up-1", "synced"}
		switch {
		case from == "":
			g.Expect(heard).To(Equal(whole))
		case slices.Contains(heard, "reset"):
			g.Expect(heard).To(Equal(append([]string{"reset"}, whole...)))
		default:
			g.Expect(len(heard)).To(BeNumerically("<=", len(whole)+1))
		}
	})
}
