// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// The bounds of the time that tokens are valid.
const (
	tokenDefault = time.Hour
	tokenLeast   = 10 * time.Minute
)

var authenticationGroup = authenticationv1.SchemeGroupVersion

// serveKeys serves what others verify tokens of service accounts with.
func (a *API) serveKeys(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path != "/openid/v1/jwks" && r.URL.Path != "/.well-known/openid-configuration" {
		return false
	}
	server, err := a.serverOf(r)
	if err != nil || server.Tokens == nil {
		writeError(w, r, apierrors.NewInternalError(errors.New("the server has no keys")))
		return true
	}
	if r.URL.Path == "/openid/v1/jwks" {
		writeJSON(w, http.StatusOK, server.Tokens.KeySet())
		return true
	}
	methods := []string{}
	for _, key := range server.Tokens.keys {
		if !slices.Contains(methods, key.Algorithm) {
			methods = append(methods, key.Algorithm)
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"issuer": server.Tokens.issuer, "jwks_uri": server.Tokens.issuer + "/openid/v1/jwks",
		"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"},
		"id_token_signing_alg_values_supported": methods,
	})
	return true
}

// requestToken makes a token for a service account.
func (a *API) requestToken(r *request, body []byte) (int, any, error) {
	server, err := a.serverOf(r.Request)
	if err != nil || server.Tokens == nil {
		return 0, nil, apierrors.NewInternalError(errors.New("the server has no keys"))
	}
	account, err := a.store.Get(ServiceAccounts, r.namespace, r.name)
	if err != nil {
		return 0, nil, err
	}
	asked := &authenticationv1.TokenRequest{}
	if err := decodeInto(body, authenticationGroup.WithKind("TokenRequest"), asked); err != nil {
		return 0, nil, err
	}
	lasts := tokenDefault
	if seconds := asked.Spec.ExpirationSeconds; seconds != nil {
		lasts = time.Duration(*seconds) * time.Second
	}
	if lasts < tokenLeast {
		return 0, nil, apierrors.NewInvalid(authenticationGroup.WithKind("TokenRequest").GroupKind(), r.name, nil)
	}
	now := time.Now()
	token, err := server.Tokens.Sign(r.namespace, subject{Name: r.name, UID: string(account.GetUID())}, asked.Spec.Audiences, now, now.Add(lasts))
	if err != nil {
		return 0, nil, apierrors.NewInternalError(err)
	}
	if len(asked.Spec.Audiences) == 0 {
		asked.Spec.Audiences = server.Tokens.audiences
	}
	seconds := int64(lasts / time.Second)
	asked.Spec.ExpirationSeconds = &seconds
	asked.ObjectMeta = metav1.ObjectMeta{Name: r.name, Namespace: r.namespace, CreationTimestamp: metav1.NewTime(now.Truncate(time.Second))}
	asked.Status = authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.NewTime(now.Add(lasts))}
	asked.SetGroupVersionKind(authenticationGroup.WithKind("TokenRequest"))
	return http.StatusCreated, asked, nil
}

// serveTokenReview says whose token somebody has got. Nothing is stored, so that it is no resource like the others.
func (a *API) serveTokenReview(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path != "/apis/"+authenticationGroup.String()+"/tokenreviews" {
		return false
	}
	resource := schema.GroupResource{Group: authenticationGroup.Group, Resource: "tokenreviews"}
	if r.Method != http.MethodPost {
		writeError(w, r, apierrors.NewMethodNotSupported(resource, r.Method))
		return true
	}
	review, err := a.review(r)
	if err != nil {
		writeError(w, r, err)
		return true
	}
	f, err := formatOf(r)
	if err != nil {
		writeError(w, r, err)
		return true
	}
	encode(w, f.info, http.StatusCreated, review)
	return true
}

func (a *API) review(r *http.Request) (*authenticationv1.TokenReview, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	review := &authenticationv1.TokenReview{}
	if err := decodeInto(body, authenticationGroup.WithKind("TokenReview"), review); err != nil {
		return nil, err
	}
	server, err := a.serverOf(r)
	if err != nil || server.Tokens == nil {
		return nil, apierrors.NewInternalError(errors.New("the server has no keys"))
	}
	review.SetGroupVersionKind(authenticationGroup.WithKind("TokenReview"))
	review.Status = a.judge(server.Tokens, review.Spec)
	return review, nil
}

// judge says what a server makes of a token. A token that is good for nothing is an answer like another.
func (a *API) judge(by *Tokens, asked authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus {
	found, err := by.verify(asked.Token, asked.Audiences, time.Now())
	if err == nil {
		err = a.revoked(found)
	}
	if err != nil {
		return authenticationv1.TokenReviewStatus{Error: "[invalid bearer token, " + err.Error() + "]"}
	}
	audiences := asked.Audiences
	if len(audiences) == 0 {
		audiences = by.audiences
	}
	audiences = slices.DeleteFunc(slices.Clone(audiences), func(audience string) bool { return !found.Audience.Contains(audience) })
	return authenticationv1.TokenReviewStatus{Authenticated: true, User: found.user(), Audiences: audiences}
}

// revoked says why a token is good for nothing any more though it is signed: its service account is gone.
func (a *API) revoked(c *claims) error {
	account, err := a.store.Get(ServiceAccounts, c.Kubernetes.Namespace, c.Kubernetes.Account.Name)
	if err != nil {
		return err
	}
	if string(account.GetUID()) != c.Kubernetes.Account.UID {
		return fmt.Errorf("the service account UID (%s) in the token does not match the existing one (%s)", c.Kubernetes.Account.UID, account.GetUID())
	}
	return nil
}

// decodeInto reads an object of a type that is no resource of the store, in any encoding.
func decodeInto(body []byte, kind schema.GroupVersionKind, into runtime.Object) error {
	_, actual, err := scheme.Codecs.UniversalDeserializer().Decode(body, &kind, into)
	if err != nil {
		return apierrors.NewBadRequest("decode: " + err.Error())
	}
	if *actual != kind {
		return apierrors.NewBadRequest(fmt.Sprintf("the object is a %s, want a %s", actual, kind))
	}
	return nil
}

// tokensOf describes the subresource of service accounts in discovery.
var tokensOf = metav1.APIResource{
	Name: "serviceaccounts/token", Group: authenticationGroup.Group, Version: authenticationGroup.Version, Kind: "TokenRequest",
	Namespaced: true, Verbs: metav1.Verbs{"create"},
}

// reviews describes token reviews in discovery.
var reviews = metav1.APIResource{
	Name: "tokenreviews", SingularName: "tokenreview", Kind: "TokenReview", Verbs: metav1.Verbs{"create"},
}
