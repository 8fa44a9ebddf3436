// SPDX-License-Identifier: Apache-2.0

// Package blob stores and reads large objects in buckets: directories of the hub here, clouds by the drivers of package drivers.
//
// Nothing is held as a whole, in memory or on disk. What was not written to its end is never there under its name.
package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	cloud "gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

// Driver opens the buckets of one scheme.
type Driver interface {
	// Parameters are those that a URL may have.
	Parameters() []string

	// Open opens the bucket of a URL, without its path, with what a Secret holds, which may be nothing. Errors do not tell what it holds.
	Open(ctx context.Context, u *url.URL, secret map[string][]byte) (*cloud.Bucket, error)
}

// Opener opens buckets.
type Opener struct {
	// Drivers are the drivers, by scheme. Directories need none.
	Drivers map[string]Driver

	// Directory is the only one, with all below it, whose buckets are opened as directories; empty means none. Who may name a bucket need
	// not be who may write to the disk of the hub.
	Directory string
}

// Open opens a bucket. Whether it is there shows when it is used.
func (o Opener) Open(ctx context.Context, at string, secret map[string][]byte) (*Bucket, error) {
	u, err := url.Parse(at)
	if err != nil {
		return nil, errors.New("bucketURL: want a URL such as s3://bucket/prefix?region=R")
	}
	if u.User != nil || u.Fragment != "" {
		return nil, errors.New("bucketURL: want a URL without user and fragment; credentials are in the Secret that credentialsSecretName names")
	}
	if u.Scheme == fileScheme {
		return o.openDirectory(u)
	}
	driver, ok := o.Drivers[u.Scheme]
	switch {
	case !ok:
		return nil, fmt.Errorf("bucketURL: this hub has no driver for %s://", u.Scheme)
	case u.Host == "":
		return nil, fmt.Errorf("bucketURL: %s:// names no bucket", u.Scheme)
	}
	for name := range u.Query() {
		if !slices.Contains(driver.Parameters(), name) {
			return nil, fmt.Errorf("bucketURL: parameter %q is none of %s://: it has %s", name, u.Scheme, strings.Join(append(driver.Parameters(), "no others"), ", "))
		}
	}
	opened, err := driver.Open(ctx, u, secret)
	if err != nil {
		return nil, fmt.Errorf("opening bucket %s://%s: %w", u.Scheme, u.Host, err)
	}
	if prefix := strings.Trim(u.Path, "/"); prefix != "" {
		opened = cloud.PrefixedBucket(opened, prefix+"/")
	}
	return &Bucket{bucket: opened}, nil
}

// Bucket is an open bucket.
type Bucket struct{ bucket *cloud.Bucket }

// New makes a Bucket of an open one.
func New(bucket *cloud.Bucket) *Bucket { return &Bucket{bucket: bucket} }

// Close ends the use of the bucket.
func (b *Bucket) Close() error { return b.bucket.Close() }

// Object is what an object is known by.
type Object struct {
	Size int64

	// Hash is the SHA-256 in hexadecimal.
	Hash string
}

// Sums takes what an object is known by from what is written to it.
type Sums struct {
	size int64
	hash interface {
		io.Writer
		Sum([]byte) []byte
	}
}

// NewSums returns Sums of nothing yet.
func NewSums() *Sums { return &Sums{hash: sha256.New()} }

// Write implements io.Writer.
func (s *Sums) Write(data []byte) (int, error) {
	s.size += int64(len(data))
	return s.hash.Write(data)
}

// Object is what was written so far.
func (s *Sums) Object() Object {
	return Object{Size: s.size, Hash: hex.EncodeToString(s.hash.Sum(nil))}
}

// Put stores what fill writes. If fill fails, or the process ends, there is no such object afterwards.
func (b *Bucket) Put(ctx context.Context, key string, fill func(io.Writer) error) (Object, error) {
	ctx, abort := context.WithCancel(ctx)
	defer abort()
	writer, err := b.bucket.NewWriter(ctx, key, &cloud.WriterOptions{ContentType: "application/octet-stream", DisableContentTypeDetection: true})
	if err != nil {
		return Object{}, &StorageError{fmt.Errorf("storing %s: %w", key, said(err))}
	}
	known := NewSums()
	if err := fill(io.MultiWriter(storing{writer}, known)); err != nil {
		abort() // What was written so far is dropped.
		_ = writer.Close()
		return Object{}, err
	}
	if err := writer.Close(); err != nil {
		return Object{}, &StorageError{fmt.Errorf("storing %s: %w", key, said(err))}
	}
	return known.Object(), nil
}

// StorageError means that the storage did not do what it was asked for.
type StorageError struct{ cause error }

// Error implements error.
func (e *StorageError) Error() string { return e.cause.Error() }

// Unwrap is the cause.
func (e *StorageError) Unwrap() error { return e.cause }

// storing marks the errors of a writer as those of the storage.
type storing struct{ io.Writer }

// Write implements io.Writer.
func (s storing) Write(data []byte) (int, error) {
	n, err := s.Writer.Write(data)
	if err != nil {
		err = &StorageError{fmt.Errorf("storing: %w", said(err))}
	}
	return n, err
}

// Read hands the bytes of an object to take.
func (b *Bucket) Read(ctx context.Context, key string, take func(io.Reader) error) error {
	reader, err := b.bucket.NewReader(ctx, key, nil)
	if err != nil {
		return &StorageError{fmt.Errorf("reading %s: %w", key, said(err))}
	}
	defer reader.Close() //nolint:errcheck // Only read from.
	return take(reading{reader})
}

// reading marks the errors of a reader as those of the storage.
type reading struct{ io.Reader }

// Read implements io.Reader.
func (r reading) Read(data []byte) (int, error) {
	n, err := r.Reader.Read(data)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &StorageError{fmt.Errorf("reading: %w", said(err))}
	}
	return n, err
}

// Look reads an object to its end, and says what it is known by.
func (b *Bucket) Look(ctx context.Context, key string) (Object, error) {
	known := NewSums()
	err := b.Read(ctx, key, func(r io.Reader) error {
		if _, err := io.Copy(known, r); err != nil {
			return &StorageError{fmt.Errorf("reading %s: %w", key, said(err))}
		}
		return nil
	})
	return known.Object(), err
}

// LookInto is Look for an object that may be encrypted, and says what it holds, too, where the seal can open it. In the same words: what
// is not as it was stored may be an error of either.
func (b *Bucket) LookInto(ctx context.Context, key string, seal *Seal) (stored, plain Object, err error) {
	if seal == nil || !seal.Opens() {
		stored, err = b.Look(ctx, key)
		return stored, Object{}, err
	}
	outside, inside := NewSums(), NewSums()
	err = b.Read(ctx, key, func(r io.Reader) error {
		all := io.TeeReader(r, outside)
		opened, err := seal.Decrypt(all)
		if err == nil {
			_, err = io.Copy(inside, opened)
		}
		if _, rest := io.Copy(io.Discard, all); rest != nil {
			return &StorageError{fmt.Errorf("reading %s: %w", key, said(rest))}
		}
		return err
	})
	return outside.Object(), inside.Object(), err
}

// Keys are the keys of all objects below a prefix.
func (b *Bucket) Keys(ctx context.Context, prefix string) ([]string, error) {
	var keys []string
	list := b.bucket.List(&cloud.ListOptions{Prefix: prefix})
	for {
		object, err := list.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return keys, nil
		case err != nil:
			return nil, &StorageError{fmt.Errorf("listing what is stored below %s: %w", prefix, said(err))}
		case !object.IsDir:
			keys = append(keys, object.Key)
		}
	}
}

// Delete deletes all objects below a prefix but one, which may be none. What is gone already is no error.
func (b *Bucket) Delete(ctx context.Context, prefix, but string) error {
	keys, err := b.Keys(ctx, prefix)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if key == but {
			continue
		}
		if err := b.bucket.Delete(ctx, key); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
			return &StorageError{fmt.Errorf("deleting %s: %w", key, said(err))}
		}
	}
	return nil
}

// Gone says whether an error means that an object is not there.
func Gone(err error) bool { return gcerrors.Code(err) == gcerrors.NotFound }
