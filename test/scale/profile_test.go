// SPDX-License-Identifier: Apache-2.0

package scale_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
)

// saveProfiles saves Go profiles of the hub in the directory that the environment names, to see what a figure is made of. It does
// nothing otherwise: to profile takes time, too.
func (h *hub) saveProfiles(ctx context.Context, name string, kinds ...string) error {
	dir := os.Getenv("ICHOR_SCALE_PROFILES")
	if dir == "" {
		return nil
	}
	for _, kind := range kinds {
		if err := h.saveProfile(ctx, kind, filepath.Join(dir, name+"-"+kind)); err != nil {
			return fmt.Errorf("saving profile %s: %w", kind, err)
		}
	}
	return nil
}

func (h *hub) saveProfile(ctx context.Context, kind, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.pprof+"/debug/pprof/"+kind+"?seconds=20", http.NoBody)
	if err != nil {
		return err
	}
	if kind != "profile" {
		request.URL.RawQuery = "gc=1"
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // It was only read.
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // The copy tells whether it was written.
	_, err = io.Copy(file, response.Body)
	return err
}

// saveRequests saves what the API server has counted so far, in the same directory.
func (h *hub) saveRequests(ctx context.Context, name string) error {
	dir := os.Getenv("ICHOR_SCALE_PROFILES")
	if dir == "" {
		return nil
	}
	text, err := h.discovery.RESTClient().Get().AbsPath("/metrics").Do(ctx).Raw()
	if err != nil {
		return fmt.Errorf("reading the metrics of the API server: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, name+"-apiserver.txt"), text, 0o600)
}
