// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// List implements machineapi.MachineServiceServer.
func (s *server) List(request *machineapi.ListRequest, stream grpc.ServerStreamingServer[machineapi.FileInfo]) error {
	switch request.GetRoot() {
	case "/system/secrets":
		for i, name := range []string{"a.crt", "a.key"} {
			if err := stream.Send(&machineapi.FileInfo{Name: "/system/secrets/" + name, RelativeName: name, Modified: int64(1000 + i)}); err != nil {
				return err
			}
		}
		return nil
	case "/broken":
		return stream.Send(&machineapi.FileInfo{Name: "/broken/a", Error: "input/output error"})
	}
	return status.Error(codes.NotFound, "no such file or directory")
}

// A reader may look at directories: it has no guard, and changes nothing.
func TestFileTimes(t *testing.T) {
	g := NewWithT(t)
	_, c := serve(t)
	reader := &connection{client: c}
	times, err := reader.FileTimes(t.Context(), "10.0.0.1", "/system/secrets")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(times).To(Equal(map[string]time.Time{"a.crt": time.Unix(1000, 0).UTC(), "a.key": time.Unix(1001, 0).UTC()}))
	_, err = reader.FileTimes(t.Context(), "10.0.0.1", "/broken")
	g.Expect(err).To(MatchError("machine at 10.0.0.1: listing /broken: input/output error"))
	_, err = reader.FileTimes(t.Context(), "10.0.0.1", "/nowhere")
	g.Expect(IsStatus(err)).To(BeTrue(), "%v", err)
}
