// Package secrets hides secrets in the texts of errors. A server, or a proxy in front of it, may repeat a request in its answer.
package secrets

import (
	"cmp"
	"encoding/base64"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const least = 4 // bytes of the shortest secret that is hidden: a shorter one may be a part of words

// A List has secrets in each form in which a text may contain them, without duplicates. The longest is first, since it may contain others.
type List []string

// New returns a list of secrets of at least four bytes. It omits shorter ones.
func New(secrets ...string) List {
	var l List
	for _, secret := range secrets {
		quoted := strconv.Quote(secret) // as %q writes it
		l = append(l, secret, quoted[1:len(quoted)-1])
	}
	return l.sorted()
}

// And returns a list with the secrets of both lists.
func (l List) And(more List) List { return slices.Concat(l, more).sorted() }

// sorted changes l.
func (l List) sorted() List {
	l = slices.DeleteFunc(l, func(secret string) bool { return len(secret) < least })
	slices.SortFunc(l, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(l)
}

// Hide returns text with an ellipsis instead of each secret.
func (l List) Hide(text string) string {
	for _, secret := range l {
		text = strings.ReplaceAll(text, secret, "…")
	}
	return text
}

// HideCut is Hide for the beginning of a longer text. It also hides the end of text if a secret begins with it, since the rest of that secret may have
// been cut off.
func (l List) HideCut(text string) string {
	start := len(text)
	for _, secret := range l {
		n := min(len(secret), len(text))
		for !strings.HasSuffix(text, secret[:n]) {
			n--
		}
		start = min(start, len(text)-n)
	}
	return l.Hide(text[:start]) + "…"
}

// An Error is an error with another text, in which secrets are hidden.
type Error struct {
	text  string
	cause error
}

// HideIn returns err with another text: without the secrets.
func (l List) HideIn(err error) error { return Error{l.Hide(err.Error()), err} }

func (e Error) Error() string { return e.text }

// Unwrap returns the error with the secrets.
func (e Error) Unwrap() error { return e.cause }

// BasicAuth returns the forms of a user's password in a URL and in the header of a request. Without a password the user is the secret: a token.
func BasicAuth(user, password string) []string {
	secret := cmp.Or(password, user)
	if secret == "" {
		return nil
	}
	return []string{
		base64.StdEncoding.EncodeToString([]byte(user + ":" + password)), secret, url.QueryEscape(secret), url.PathEscape(secret),
	}
}

// InHeader returns the values of a header, and their words: in "Bearer abc" the secret is the second.
func InHeader(values ...string) (forms []string) {
	for _, value := range values {
		forms = append(forms, strings.TrimSpace(value))
		forms = append(forms, strings.Fields(value)...)
	}
	return forms
}
