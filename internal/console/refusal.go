package console

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/troupe-go/troupe/internal/admin"
	relays "github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/internal/flow/watch"
	"github.com/troupe-go/troupe/internal/plain"
)

// refusal is an error with an HTTP status.
type refusal struct {
	status int
	text   string
}

func (r refusal) Error() string { return r.text }

// elsewhere is an error for which a browser is redirected to another page of the console.
type elsewhere struct {
	error
	page string
}

func (e elsewhere) Unwrap() error { return e.error }

func refuse(status int, format string, args ...any) error {
	return refusal{status, fmt.Sprintf(format, args...)}
}

// checkText returns an error, with the field's name, for values that Postgres does not accept as text.
func checkText(values url.Values) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		for _, value := range values[name] {
			if strings.ContainsRune(value, 0) || !utf8.ValidString(value) {
				return refuse(http.StatusBadRequest, "%s: want text in UTF-8 without the character NUL", plain.Line(name, 100))
			}
		}
	}
	return nil
}

// statusOf returns the HTTP status of an error.
func statusOf(err error) int {
	var r refusal
	var field admin.FieldError
	is := func(any ...error) bool {
		for _, one := range any {
			if errors.Is(err, one) {
				return true
			}
		}
		return false
	}
	switch {
	case errors.As(err, &r):
		return r.status
	case errors.As(err, &field):
		return http.StatusBadRequest
	case is(repair.ErrNotFound, decisions.ErrNotFound, relays.ErrNoFailure, relays.ErrNoRelay, watch.ErrNone):
		return http.StatusNotFound
	case is(repair.ErrNotOpen, admin.ErrBusy, repair.ErrGone, repair.ErrBehind, repair.ErrUnsendable, decisions.ErrRefused, decisions.ErrConflict,
		relays.ErrNotParked, relays.ErrSeveral, relays.ErrPaused, relays.ErrNotPaused):
		return http.StatusConflict
	case is(repair.ErrPayload):
		return http.StatusUnprocessableEntity
	case is(context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	}
	return http.StatusBadGateway
}
