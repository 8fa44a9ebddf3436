// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	// user is whom the hub runs as. It is nobody: it owns nothing in the image.
	user = 65532

	binaryPath = "usr/bin/ichor-hub"
	rootsPath  = "etc/ssl/certs/ca-certificates.crt"
)

// file is a file of the image, or a directory if its name ends in a slash.
type file struct {
	name    string
	mode    int64
	content []byte
}

// base is what a program needs that brings everything else along: authorities to trust, and a name for the user that it runs as.
func base() []file {
	return []file{
		{"etc/", 0o755, nil}, {"etc/ssl/", 0o755, nil}, {"etc/ssl/certs/", 0o755, nil},
		{"etc/group", 0o644, fmt.Appendf(nil, "root:x:0:\nichor:x:%d:\n", user)},
		{"etc/passwd", 0o644, fmt.Appendf(nil, "root:x:0:0:root:/:/nonexistent\nichor:x:%[1]d:%[1]d:ichor:/:/nonexistent\n", user)},
		{rootsPath, 0o644, roots()},
		{"usr/", 0o755, nil}, {"usr/bin/", 0o755, nil},
	}
}

// roots are the authorities that Mozilla trusts without conditions, as the Go project distributes them.
func roots() []byte {
	var list [][]byte
	for root := range bundle.Roots() {
		if root.Constraint == nil { // A file of certificates cannot say on which conditions.
			list = append(list, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	slices.SortFunc(list, bytes.Compare)
	return bytes.Join(list, nil)
}

// layer is a layer of an image: a compressed archive.
type layer struct {
	compressed, plain []byte
	digest, diffID    v1.Hash
}

// newLayer makes a layer of files. The same files give the same layer.
func newLayer(files []file, created time.Time) (*layer, error) {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	var plain, compressed bytes.Buffer
	archive := tar.NewWriter(&plain)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: created, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if strings.HasSuffix(f.name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := archive.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("writing %s: %w", f.name, err)
		}
		if _, err := archive.Write(f.content); err != nil {
			return nil, fmt.Errorf("writing %s: %w", f.name, err)
		}
	}
	writer := gzip.NewWriter(&compressed)
	if err := archive.Close(); err != nil {
		return nil, err
	}
	_, err := writer.Write(plain.Bytes())
	if err := errors.Join(err, writer.Close()); err != nil {
		return nil, err
	}
	l := &layer{compressed: compressed.Bytes(), plain: plain.Bytes()}
	if l.digest, _, err = v1.SHA256(bytes.NewReader(l.compressed)); err != nil {
		return nil, err
	}
	l.diffID, _, err = v1.SHA256(bytes.NewReader(l.plain))
	return l, err
}

// Digest implements v1.Layer, as do the others.
func (l *layer) Digest() (v1.Hash, error) { return l.digest, nil }

// DiffID is the hash of what is not compressed.
func (l *layer) DiffID() (v1.Hash, error) { return l.diffID, nil }

// Compressed reads the layer as it is stored.
func (l *layer) Compressed() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(l.compressed)), nil
}

// Uncompressed reads the archive.
func (l *layer) Uncompressed() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(l.plain)), nil
}

// Size is that of the layer as it is stored.
func (l *layer) Size() (int64, error) { return int64(len(l.compressed)), nil }

// MediaType says how it is stored.
func (l *layer) MediaType() (types.MediaType, error) { return types.OCILayer, nil }
