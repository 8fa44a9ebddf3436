// SPDX-License-Identifier: Apache-2.0

package dial

import "strings"

// tlsTroubles are what crypto/tls says about certificates, in its words and in ours. gRPC hands on the text of an error and not the error
// itself, so the text it is.
var tlsTroubles = []struct {
	theirs, ours string
	credential   bool
}{
	{"remote error: tls: expired certificate", "the server does not accept the client certificate: it has expired", true},
	{"remote error: tls: unknown certificate authority", "the server does not accept the client certificate: it does not know its CA", true},
	{"remote error: tls: certificate required", "the server wants a client certificate", true},
	{"remote error: tls: revoked certificate", "the server does not accept the client certificate: it is revoked", true},
	{"remote error: tls: bad certificate", "the server does not accept the client certificate", true},
	{"remote error: tls: unknown certificate", "the server does not accept the client certificate", true},
	{"remote error: tls: access denied", "the server does not accept the client certificate", true},
	{"certificate signed by unknown authority", "the certificate of the server is not signed by the CA of the file", true},
	{"certificate has expired or is not yet valid", "the certificate of the server has expired or is not yet valid", false},
	{"certificate is valid for", "the certificate of the server is for another address", false},
	{"certificate is not valid for", "the certificate of the server is for another address", false},
	{"doesn't contain any IP SANs", "the certificate of the server is for another address", false},
	{"cannot validate certificate for", "the certificate of the server is for another address", false},
	{"certificate", "the TLS certificate is not accepted, by the hub or by the server", false},
}

// TLSTrouble says in words that stay the same what an error of crypto/tls is about, and whether other credentials would help. No words
// mean that it is about something else.
func TLSTrouble(message string) (words string, credential bool) {
	for _, trouble := range tlsTroubles {
		if strings.Contains(message, trouble.theirs) {
			return trouble.ours, trouble.credential
		}
	}
	return "", false
}
