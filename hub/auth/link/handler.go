// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/json"
	"errors"
	"html/template"
	"mime"
	"net/http"
	"time"

	"ichor.maesh.dev/hub/config/rbac"
	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/auth/session"
)

const (
	// User is who comes by a link, unless Options name somebody else. What they may do is for the roles to say.
	User = "ichor-admin"

	// Group is the group of User.
	Group = rbac.AdminsGroup

	maxBody = 4 << 10
)

// Options say who comes by a link.
type Options struct {
	Store Store

	// User and Groups are whom a link signs in; empty is User in Group.
	User   string
	Groups []string
}

// Handler takes links. A browser that follows one gets a page with one button, since mail and chat programs look at links as well.
type Handler struct {
	store    Store
	user     auth.Caller
	sessions *session.Sessions
}

// NewHandler returns a Handler that begins sessions.
func NewHandler(o Options, sessions *session.Sessions) *Handler {
	user := auth.Caller{Name: o.User, Groups: o.Groups, Method: auth.LinkMethod}
	if user.Name == "" {
		user.Name, user.Groups = User, []string{Group}
	}
	user.Groups = auth.WithAuthenticated(user.Groups)
	return &Handler{store: o.Store, user: user, sessions: sessions}
}

// Exchange is what a command line sends.
type Exchange struct {
	Code string `json:"code"`
}

// Grant is what it gets.
type Grant struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

var page = template.Must(template.New("link").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Ichor hub</title>
<form method="post" action="{{.Path}}"><input type="hidden" name="code" value="{{.Code}}"><button autofocus>Sign in to Ichor hub</button></form>
</html>
`))

// ServeHTTP shows the page, or uses the link up.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	contentType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = page.Execute(w, map[string]string{"Path": Path, "Code": r.URL.Query().Get(CodeParameter)}) // Whoever asked is gone if it fails.
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", "GET, POST")
		http.Error(w, "method "+r.Method+": want GET or POST", http.StatusMethodNotAllowed)
	case contentType == "application/json":
		h.grant(w, r)
	default:
		h.signIn(w, r)
	}
}

// grant answers a command line.
func (h *Handler) grant(w http.ResponseWriter, r *http.Request) {
	var asked Exchange
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&asked); err != nil || asked.Code == "" {
		http.Error(w, `body: want {"code":"..."}`, http.StatusBadRequest)
		return
	}
	if err := h.store.Redeem(asked.Code, h.sessions.Now()); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	token, expires, err := h.sessions.Token(h.user)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(Grant{Token: token, Expires: expires}) //nolint:errchkjson // Whoever asked is gone if it fails.
}

// signIn answers the page's form.
func (h *Handler) signIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if err := h.redeemForm(r); err != nil {
		auth.Sorry(w, r, err.Error(), http.StatusForbidden)
		return
	}
	if err := h.sessions.SetCookie(w, h.user); err != nil {
		auth.Sorry(w, r, err.Error(), http.StatusInternalServerError)
		return
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// redeemForm takes the code of a form. A page of another site must not sign somebody in as another user than they think they are.
func (h *Handler) redeemForm(r *http.Request) error {
	if err := session.FromOwnSite(r); err != nil {
		return err
	}
	code := r.PostFormValue(CodeParameter)
	if code == "" {
		return errors.New("the form has no code: follow the link again")
	}
	return h.store.Redeem(code, h.sessions.Now())
}
