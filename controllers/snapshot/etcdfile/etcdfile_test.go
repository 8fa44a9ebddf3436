// SPDX-License-Identifier: Apache-2.0

package etcdfile_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
	"path/filepath"
	"testing"
	"testing/iotest"

	. "github.com/onsi/gomega"
	"go.etcd.io/bbolt"

	"ichor.maesh.dev/hub/controllers/snapshot/etcdfile"
)

// database makes what etcd's backend would: buckets as etcd has them, keys by revision.
func database(t *testing.T, keys, valueSize int) []byte {
	t.Helper()
	g := NewWithT(t)
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, &bbolt.Options{NoSync: true})
	g.Expect(err).NotTo(HaveOccurred())
	defer db.Close() //nolint:errcheck // It is read already.
	for _, name := range []string{"alarm", "auth", "authRoles", "authUsers", "cluster", "key", "lease", "members", "members_removed", "meta"} {
		g.Expect(db.Update(func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucketIfNotExists([]byte(name))
			return err
		})).To(Succeed())
	}
	for from := 0; from < keys; from += 500 { // In several transactions, so that pages are freed and used again.
		g.Expect(db.Update(func(tx *bbolt.Tx) error {
			for i := from; i < min(from+500, keys); i++ {
				size := valueSize
				if i%97 == 0 {
					size *= 20 // Some go on over several pages.
				}
				if err := tx.Bucket([]byte("key")).Put(revision(int64(i+2), i == keys-1), bytes.Repeat([]byte{byte(i)}, size)); err != nil {
					return err
				}
			}
			return tx.Bucket([]byte("meta")).Put([]byte("consistent_index"), binary.BigEndian.AppendUint64(nil, uint64(from)))
		})).To(Succeed())
	}
	if keys > 1000 { // What a compaction leaves.
		g.Expect(db.Update(func(tx *bbolt.Tx) error {
			for i := range keys / 2 {
				if err := tx.Bucket([]byte("key")).Delete(revision(int64(i+2), false)); err != nil {
					return err
				}
			}
			return nil
		})).To(Succeed())
	}
	var out bytes.Buffer
	g.Expect(db.View(func(tx *bbolt.Tx) error {
		_, err := tx.WriteTo(&out)
		return err
	})).To(Succeed())
	return out.Bytes()
}

// revision is a key as etcd writes it.
func revision(main int64, deleted bool) []byte {
	key := append(binary.BigEndian.AppendUint64(nil, uint64(main)), '_')
	key = binary.BigEndian.AppendUint64(key, 0)
	if deleted {
		key = append(key, 't')
	}
	return key
}

func snapshot(db []byte) []byte {
	sum := sha256.Sum256(db)
	return append(bytes.Clone(db), sum[:]...)
}

func check(t *testing.T, from io.Reader) (etcdfile.Facts, error) {
	t.Helper()
	c := etcdfile.New()
	_, err := io.Copy(c, from)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return c.Finish()
}

func TestFactsOfASnapshot(t *testing.T) {
	for name, row := range map[string]struct{ keys, valueSize int }{
		"in one leaf":          {1, 10},
		"with a page":          {30, 100},
		"with many pages":      {5000, 300},
		"with values of pages": {400, 9000},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			data := snapshot(database(t, row.keys, row.valueSize))
			sum := sha256.Sum256(data)
			want := etcdfile.Facts{Size: int64(len(data)), Hash: hex.EncodeToString(sum[:]), Revision: int64(row.keys + 1)}
			g.Expect(check(t, bytes.NewReader(data))).To(Equal(want))
			g.Expect(check(t, iotest.HalfReader(bytes.NewReader(data)))).To(Equal(want))
		})
	}
}

// Whatever is not the whole of what etcd made is refused before anything is wiped for it.
func TestCaseI3DamagedSnapshots(t *testing.T) {
	db := database(t, 3000, 200)
	whole := snapshot(db)
	changed := bytes.Clone(whole)
	changed[len(changed)/2] ^= 1
	otherSum := bytes.Clone(whole)
	otherSum[len(otherSum)-1] ^= 1
	meta := bytes.Clone(db)
	meta[16+20] ^= 1
	meta[4096+16+20] ^= 1
	for name, row := range map[string]struct {
		data []byte
		says string
	}{
		"nothing":                {nil, "it is empty"},
		"cut in a page":          {whole[:len(whole)/2+7], "does not end with a SHA-256"},
		"cut before the sum":     {db, "does not end with a SHA-256"},
		"cut by pages":           {append(bytes.Clone(db[:8192]), whole[len(whole)-32:]...), "not what the SHA-256"},
		"a byte is another":      {changed, "not what the SHA-256"},
		"the sum is another":     {otherSum, "not what the SHA-256"},
		"no database":            {snapshot(bytes.Repeat([]byte("x"), 4096)), "does not begin like a database"},
		"no root":                {snapshot(meta), "says where its root is"},
		"no key":                 {snapshot(database(t, 0, 0)), "holds no key"},
		"only its first pages":   {snapshot(db[:8192]), "no bucket with the keys"},
		"less than a page of it": {snapshot(db[:512]), "says where its root is"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := check(t, bytes.NewReader(row.data))
			g.Expect(err).To(MatchError(etcdfile.ErrDamaged))
			g.Expect(err).To(MatchError(ContainSubstring(row.says)))
		})
	}
}

func FuzzChecker(f *testing.F) {
	f.Add([]byte("nothing"))
	header := make([]byte, 4096)
	binary.LittleEndian.PutUint32(header[16:], 0xED0CDAED)
	binary.LittleEndian.PutUint32(header[20:], 2)
	binary.LittleEndian.PutUint32(header[24:], 1024)
	f.Add(header)
	f.Fuzz(func(t *testing.T, data []byte) {
		for len(data)%512 != 0 {
			data = append(data, 0)
		}
		facts, err := check(t, bytes.NewReader(snapshot(data)))
		if err == nil && facts.Revision < 1 {
			t.Fatalf("revision %d", facts.Revision)
		}
	})
}
