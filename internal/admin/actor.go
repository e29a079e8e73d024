package admin

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/troupe-go/troupe/internal/plain"
)

// These limit an Actor's fields, in bytes.
const (
	MaxName   = 200
	MaxReason = 2000
)

// An Actor is the operator of an action, and the reason for it. Both are recorded with the action. The name is not verified
// here: the caller supplies it.
type Actor struct {
	Name   string `json:"actor"`
	Reason string `json:"reason"`
}

// A Change is an action of an operator on a schedule or a rebuild. Change describes it.
type Change struct {
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Role   string    `json:"role"`
	Action string    `json:"action"`
	Reason string    `json:"reason"`
	Change string    `json:"change"`
}

// A FieldError reports a field of a request that an operator must correct.
type FieldError struct {
	Field   string // actor, reason or after
	Problem string
}

// Error returns the field and the problem.
func (e FieldError) Error() string { return e.Field + ": " + e.Problem }

// Check returns a FieldError unless the name can be recorded: text of one line, of at most MaxName bytes. A reason may be
// missing, and has at most MaxReason bytes.
func (a Actor) Check() error {
	switch {
	case strings.TrimSpace(a.Name) == "":
		return FieldError{"actor", "want an actor: the name of the person or program, for the record"}
	case len(a.Name) > MaxName:
		return FieldError{"actor", fmt.Sprintf("%d bytes: at most %d", len(a.Name), MaxName)}
	case len(a.Reason) > MaxReason:
		return FieldError{"reason", fmt.Sprintf("%d bytes: at most %d", len(a.Reason), MaxReason)}
	case !utf8.ValidString(a.Reason) || strings.ContainsRune(a.Reason, 0):
		return FieldError{"reason", "want text in UTF-8 without the character NUL"}
	}
	if err := plain.CheckName(a.Name); err != nil {
		return FieldError{"actor", err.Error()}
	}
	return nil
}

// CheckReasoned is Check for actions that require a reason.
func (a Actor) CheckReasoned() error {
	if err := a.Check(); err != nil {
		return err
	}
	if strings.TrimSpace(a.Reason) == "" {
		return FieldError{"reason", "want a reason, for the record: a ticket's number is enough"}
	}
	return nil
}
