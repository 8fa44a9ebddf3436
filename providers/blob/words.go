// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"fmt"
	"regexp"

	"gocloud.dev/gcerrors"
)

// Error texts of the clouds' clients hold request IDs, which differ each time, and addresses with tokens in them.
var (
	requestIDs = regexp.MustCompile(`(?i)(,? ?(request ?id|host ?id|x-ms-request-id)[:=]? ?"?[0-9A-Za-z+/=_-]*"?)`)
	queries    = regexp.MustCompile(`\?[^\s"]*`)
	blanks     = regexp.MustCompile(`\s+`)
)

// saidError is an error in words that are the same for the same fault, and that tell no secret.
type saidError struct {
	cause error
	words string
}

// Error implements error.
func (e *saidError) Error() string { return e.words }

// Unwrap is the cause.
func (e *saidError) Unwrap() error { return e.cause }

// said says an error of a client of a cloud in words for people.
func said(err error) error {
	words := err.Error()
	words = queries.ReplaceAllString(words, "")
	words = requestIDs.ReplaceAllString(words, "")
	words = blanks.ReplaceAllString(words, " ")
	switch gcerrors.Code(err) { //nolint:exhaustive // The others are said best by their own words.
	case gcerrors.NotFound:
		words = "it is not there, or the bucket is not"
	case gcerrors.PermissionDenied:
		words = fmt.Sprintf("the storage does not allow it: %s", words)
	}
	return &saidError{cause: err, words: words}
}
