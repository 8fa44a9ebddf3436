// SPDX-License-Identifier: Apache-2.0

package drivers_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io"
	"net/http/httptest"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/providers/blob"
	"ichor.maesh.dev/hub/providers/blob/drivers"
)

var someone = map[string][]byte{"AWS_ACCESS_KEY_ID": []byte("someone"), "AWS_SECRET_ACCESS_KEY": []byte("hunter2")}

// Without credentials of its own a bucket is nobody's: the hub's own are not for whoever may write a TalosCluster.
func TestWhatOpensNoBucket(t *testing.T) {
	for name, row := range map[string]struct {
		at     string
		secret map[string][]byte
		says   string
	}{
		"S3 without":             {"s3://b?region=r", nil, "credentials are missing: name a Secret in spec.etcdBackup.credentialsSecretName, or run the hub with --ambient-storage-credentials"},
		"S3 with half":           {"s3://b?region=r", map[string][]byte{"AWS_ACCESS_KEY_ID": []byte("hunter2")}, "the Secret with credentials has no AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"},
		"S3 with no certificate": {"s3://b?region=r", map[string][]byte{"AWS_ACCESS_KEY_ID": []byte("a"), "AWS_SECRET_ACCESS_KEY": []byte("b"), "ca.crt": []byte("hunter2")}, "ca.crt of the Secret with credentials holds no certificate in PEM"},
		"S3 with a profile":      {"s3://b?profile=root", someone, `parameter "profile" is none of s3://: it has region, endpoint, use_path_style, no others`},
		"Google without":         {"gs://b", nil, "credentials are missing"},
		"Google with another":    {"gs://b", map[string][]byte{"key": []byte("hunter2")}, "the Secret with credentials has no credentials.json"},
		"Google with a program": {
			"gs://b", map[string][]byte{"credentials.json": []byte(`{"type":"external_account","credential_source":{"executable":{"command":"/bin/hunter2"}}}`)},
			"reading credentials.json of the Secret with credentials: want the key of a service account",
		},
		"Azure without":   {"azblob://b?account=a", nil, "credentials are missing"},
		"Azure of nobody": {"azblob://b", map[string][]byte{"AZURE_STORAGE_KEY": []byte("aHVudGVyMg==")}, "the Secret with credentials has no AZURE_STORAGE_ACCOUNT"},
		"Azure with no key": {
			"azblob://b", map[string][]byte{"AZURE_STORAGE_ACCOUNT": []byte("a"), "AZURE_STORAGE_KEY": []byte("hunter2!")}, "AZURE_STORAGE_KEY of the Secret with credentials is no key in base64",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := blob.Opener{Drivers: drivers.All(false)}.Open(t.Context(), row.at, row.secret)
			g.Expect(err).To(MatchError(ContainSubstring(row.says)))
			g.Expect(err).NotTo(MatchError(ContainSubstring("hunter2")))
		})
	}
}

func TestCloudsOpenWithTheirCredentials(t *testing.T) {
	for at, secret := range map[string]map[string][]byte{
		"azblob://b/prefix": {"AZURE_STORAGE_ACCOUNT": []byte("a"), "AZURE_STORAGE_SAS_TOKEN": []byte("sv=2020&sig=x")},
		"azblob://b":        {"AZURE_STORAGE_ACCOUNT": []byte("a"), "AZURE_STORAGE_KEY": []byte("aHVudGVyMg==")},
	} {
		bucket, err := blob.Opener{Drivers: drivers.All(false)}.Open(t.Context(), at, secret)
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred(), at)
		g.Expect(bucket.Close()).To(Succeed())
	}
}

// In parts, since what is stored may be large; over a certificate of one's own; and cut in the middle it leaves nothing to be read.
func TestS3(t *testing.T) {
	g := NewWithT(t)
	store := s3mem.New()
	g.Expect(store.CreateBucket("backups")).To(Succeed())
	server := httptest.NewTLSServer(gofakes3.New(store).Server())
	t.Cleanup(server.Close)
	secret := map[string][]byte{"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
	for key, value := range someone {
		secret[key] = value
	}
	bucket, err := blob.Opener{Drivers: drivers.All(false)}.Open(t.Context(), "s3://backups/fleet?region=r&use_path_style=true&endpoint="+server.URL, secret)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(bucket.Close()).To(Succeed()) })

	data := make([]byte, 12<<20)
	_, _ = rand.Read(data)
	sum := sha256.Sum256(data)
	want := blob.Object{Size: int64(len(data)), Hash: hex.EncodeToString(sum[:])}
	all := func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
	g.Expect(bucket.Put(t.Context(), "c/one.db", all)).To(Equal(want))
	g.Expect(bucket.Look(t.Context(), "c/one.db")).To(Equal(want))
	_, err = bucket.Put(t.Context(), "c/two.db", func(w io.Writer) error { return errors.Join(all(w), errors.New("the stream broke")) })
	g.Expect(err).To(MatchError("the stream broke"))
	g.Expect(bucket.Keys(t.Context(), "")).To(Equal([]string{"c/one.db"}))
	g.Expect(bucket.Delete(t.Context(), "c/", "")).To(Succeed())
	_, err = bucket.Look(t.Context(), "c/one.db")
	g.Expect(err).To(MatchError("reading c/one.db: it is not there, or the bucket is not"))

	_, err = blob.Opener{Drivers: drivers.All(false)}.Open(t.Context(), "s3://nowhere?region=r&use_path_style=true&endpoint="+server.URL, secret)
	g.Expect(err).NotTo(HaveOccurred(), "that shows when it is used")
}
