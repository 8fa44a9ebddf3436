// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"gocloud.dev/blob/fileblob"
)

// fileScheme is the scheme of buckets that are directories of the hub.
const fileScheme = "file"

// openDirectory opens a directory below the one that the hub allows, and makes it where it is not there.
func (o Opener) openDirectory(u *url.URL) (*Bucket, error) {
	switch {
	case u.Host != "" || u.RawQuery != "":
		return nil, errors.New("bucketURL: want file:///DIRECTORY, with three slashes and no parameters")
	case o.Directory == "":
		return nil, errors.New("bucketURL: this hub stores nothing on its own disk: use s3://, gs:// or azblob://, or run it with --snapshot-dir")
	}
	root, dir := filepath.Clean(o.Directory), filepath.Clean(filepath.FromSlash(u.Path))
	if dir != root && !strings.HasPrefix(dir, root+string(filepath.Separator)) {
		return nil, fmt.Errorf("bucketURL: %s is not below %s, which --snapshot-dir of the hub allows", dir, root)
	}
	// Files that are not whole yet are in the same directory: a name that they are moved from must be on the same disk.
	bucket, err := fileblob.OpenBucket(dir, &fileblob.Options{CreateDir: true, DirFileMode: 0o700, NoTempDir: true, Metadata: fileblob.MetadataDontWrite})
	if err != nil {
		return nil, fmt.Errorf("opening directory %s: %w", dir, err)
	}
	return New(bucket), nil
}
