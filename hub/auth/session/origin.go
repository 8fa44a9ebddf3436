// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
)

// forms are the content types that a page of another site can send without asking.
var forms = map[string]bool{"": true, "application/x-www-form-urlencoded": true, "multipart/form-data": true, "text/plain": true}

var protection = http.NewCrossOriginProtection()

// FromOwnSite refuses a request that changes something unless the browser says that a page of the hub sent it. Every browser of the last
// years says so; what says nothing is no browser, and has no business with cookies.
func FromOwnSite(r *http.Request) error {
	if safe(r.Method) {
		return nil
	}
	if r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == "" {
		return errors.New("the request does not say with header Sec-Fetch-Site, or Origin, that it comes from a page of the hub")
	}
	if err := protection.Check(r); err != nil {
		return fmt.Errorf("the request comes from a page of another site: %w", err)
	}
	return nil
}

// fromOwnPage also refuses what a form could have sent: a second lock on the same door.
func fromOwnPage(r *http.Request) error {
	if err := FromOwnSite(r); err != nil {
		return err
	}
	contentType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if !safe(r.Method) && (forms[contentType] || err != nil) {
		return fmt.Errorf("content type %.64q with a cookie: want one that no form can send, such as application/json", r.Header.Get("Content-Type"))
	}
	return nil
}

func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}
