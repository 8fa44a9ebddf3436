// SPDX-License-Identifier: Apache-2.0

package blob_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"filippo.io/age"
	. "github.com/onsi/gomega"
	cloud "gocloud.dev/blob"
	"gocloud.dev/blob/memblob"

	"ichor.maesh.dev/hub/providers/blob"
)

// memory is a driver whose buckets are in memory.
type memory struct{ opened *cloud.Bucket }

func (memory) Parameters() []string { return []string{"region"} }

func (m memory) Open(context.Context, *url.URL, map[string][]byte) (*cloud.Bucket, error) {
	return m.opened, nil
}

func directory(t *testing.T) (*blob.Bucket, string) {
	t.Helper()
	g := NewWithT(t)
	root := t.TempDir()
	bucket, err := blob.Opener{Directory: root}.Open(t.Context(), "file://"+root+"/fleet", nil)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(bucket.Close()).To(Succeed()) })
	return bucket, filepath.Join(root, "fleet")
}

func write(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

func TestWhatIsStoredIsWhatWasWritten(t *testing.T) {
	g := NewWithT(t)
	bucket, dir := directory(t)
	data := make([]byte, 3<<20)
	_, _ = rand.Read(data)
	sum := sha256.Sum256(data)
	want := blob.Object{Size: int64(len(data)), Hash: hex.EncodeToString(sum[:])}
	g.Expect(bucket.Put(t.Context(), "a/b/one.db", write(data))).To(Equal(want))
	g.Expect(bucket.Look(t.Context(), "a/b/one.db")).To(Equal(want))
	g.Expect(os.ReadFile(filepath.Join(dir, "a", "b", "one.db"))).To(Equal(data))
	for _, made := range []string{dir, filepath.Join(dir, "a", "b")} {
		info, err := os.Stat(made)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(info.Mode().Perm()).To(BeEquivalentTo(0o700), "what is in it holds Secrets")
	}
}

// What is not written to its end leaves nothing, under its name or another.
func TestAnInterruptedUploadLeavesNothing(t *testing.T) {
	broken := errors.New("the stream broke")
	for name, end := range map[string]func(context.CancelFunc) error{
		"the source breaks": func(context.CancelFunc) error { return broken },
		"the hub ends": func(cancel context.CancelFunc) error {
			cancel()
			return context.Canceled
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			bucket, dir := directory(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := bucket.Put(ctx, "a/one.db", func(w io.Writer) error {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return err
				}
				return end(cancel)
			})
			g.Expect(err).To(HaveOccurred())
			g.Expect(bucket.Keys(t.Context(), "")).To(BeEmpty())
			left, err := filepath.Glob(filepath.Join(dir, "*", "*"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(left).To(BeEmpty())
		})
	}
}

func TestDeleteAllButOne(t *testing.T) {
	g := NewWithT(t)
	bucket, _ := directory(t)
	for _, key := range []string{"a/one/1.db", "a/one/2.db", "a/other/1.db"} {
		_, err := bucket.Put(t.Context(), key, write([]byte("x")))
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(bucket.Delete(t.Context(), "a/one/", "a/one/2.db")).To(Succeed())
	g.Expect(bucket.Keys(t.Context(), "")).To(ConsistOf("a/one/2.db", "a/other/1.db"))
	g.Expect(bucket.Delete(t.Context(), "a/one/", "")).To(Succeed())
	g.Expect(bucket.Delete(t.Context(), "a/one/", "")).To(Succeed(), "once more")
	g.Expect(bucket.Keys(t.Context(), "")).To(ConsistOf("a/other/1.db"))
	_, err := bucket.Look(t.Context(), "a/one/2.db")
	g.Expect(blob.Gone(err)).To(BeTrue())
	g.Expect(err).To(MatchError("reading a/one/2.db: it is not there, or the bucket is not"))
}

func TestWhatIsNoBucket(t *testing.T) {
	root := t.TempDir()
	opener := blob.Opener{Directory: root, Drivers: map[string]blob.Driver{"mem": memory{}}}
	for at, row := range map[string]struct {
		opener blob.Opener
		says   string
	}{
		"file:///etc":                      {opener, "bucketURL: /etc is not below " + root + ", which --snapshot-dir of the hub allows"},
		"file://" + root + "/../other":     {opener, "is not below"},
		"file://" + root + "-other":        {opener, "is not below"},
		"file://host" + root:               {opener, "bucketURL: want file:///DIRECTORY"},
		"file://" + root:                   {blob.Opener{}, "bucketURL: this hub stores nothing on its own disk"},
		"s3://bucket":                      {opener, "bucketURL: this hub has no driver for s3://"},
		"mem://":                           {opener, "bucketURL: mem:// names no bucket"},
		"mem://bucket?profile=x":           {opener, `bucketURL: parameter "profile" is none of mem://: it has region, no others`},
		"mem://someone:secret@bucket/path": {opener, "bucketURL: want a URL without user"},
		"mem://%zz":                        {opener, "bucketURL: want a URL such as s3://"},
	} {
		t.Run(at, func(t *testing.T) {
			g := NewWithT(t)
			_, err := row.opener.Open(t.Context(), at, nil)
			g.Expect(err).To(MatchError(ContainSubstring(row.says)))
			g.Expect(err).NotTo(MatchError(ContainSubstring("secret")))
		})
	}
}

func TestThePathOfAURLIsAPrefix(t *testing.T) {
	g := NewWithT(t)
	all := memblob.OpenBucket(nil)
	opener := blob.Opener{Drivers: map[string]blob.Driver{"mem": memory{opened: all}}}
	bucket, err := opener.Open(t.Context(), "mem://bucket/a/fleet/?region=r", nil)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = bucket.Put(t.Context(), "one.db", write([]byte("x")))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(bucket.Keys(t.Context(), "")).To(Equal([]string{"one.db"}))
	g.Expect(bucket.Look(t.Context(), "one.db")).To(HaveField("Size", BeEquivalentTo(1)))
}

func TestSeal(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	other, err := age.GenerateX25519Identity()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	private, public := identity.String(), identity.Recipient().String()

	t.Run("opens what it closed", func(t *testing.T) {
		g := NewWithT(t)
		whole, err := blob.NewSeal(map[string][]byte{blob.IdentityKey: []byte("# created: today\n# public key: " + public + "\n" + private + "\n")})
		g.Expect(err).NotTo(HaveOccurred())
		half, err := blob.NewSeal(map[string][]byte{blob.RecipientKey: []byte(public)})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(whole.Recipient()).To(Equal(public))
		g.Expect([]bool{whole.Opens(), half.Opens()}).To(Equal([]bool{true, false}))
		var sealed bytes.Buffer
		writer, err := half.Encrypt(&sealed)
		g.Expect(err).NotTo(HaveOccurred())
		_, err = writer.Write([]byte("very secret"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(writer.Close()).To(Succeed())
		g.Expect(sealed.String()).NotTo(ContainSubstring("secret"))
		opened, err := whole.Decrypt(bytes.NewReader(sealed.Bytes()))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(io.ReadAll(opened)).To(Equal([]byte("very secret")))
		_, err = half.Decrypt(bytes.NewReader(sealed.Bytes()))
		g.Expect(err).To(MatchError("decrypting: the Secret has no identity"))
		strange, err := blob.NewSeal(map[string][]byte{blob.IdentityKey: []byte(other.String())})
		g.Expect(err).NotTo(HaveOccurred())
		_, err = strange.Decrypt(bytes.NewReader(sealed.Bytes()))
		g.Expect(err).To(MatchError("decrypting: it is encrypted for another key than " + other.Recipient().String()))
	})
	for name, row := range map[string]struct {
		secret map[string][]byte
		says   string
	}{
		"nothing":            {nil, "has no recipient and no identity"},
		"no private key":     {map[string][]byte{"identity": []byte("hunter2")}, "identity of the Secret is no private key of age"},
		"no public key":      {map[string][]byte{"recipient": []byte("hunter2")}, "recipient of the Secret is no public key of age"},
		"halves of two keys": {map[string][]byte{"identity": []byte(private), "recipient": []byte(other.Recipient().String())}, "are not the halves of one key"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := blob.NewSeal(row.secret)
			g.Expect(err).To(MatchError(ContainSubstring(row.says)))
			g.Expect(err).NotTo(MatchError(Or(ContainSubstring("hunter2"), ContainSubstring("AGE-SECRET-KEY-1Q"))))
		})
	}
}
