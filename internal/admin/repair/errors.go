package repair

import "errors"

// These are the errors that callers distinguish. The text of all others describes the remedy.
var (
	// ErrNotFound means that there is no such dead letter, held message or unreadable batch.
	ErrNotFound = errors.New("not found")
	// ErrNotOpen means that the dead letter was redriven or discarded before, or the batch skipped.
	ErrNotOpen = errors.New("not open any more")
	// ErrGone means that the held message has taken effect, or has become a dead letter.
	ErrGone = errors.New("not held any more")
	// ErrBehind means that the held message waits behind another one of its key.
	ErrBehind = errors.New("not the first of its key")
	// ErrPayload means that the text of an edit cannot be this message's payload.
	ErrPayload = errors.New("payload refused")
	// ErrUnsendable means that no relay could send the message, or that no participant could consume it.
	ErrUnsendable = errors.New("cannot be redriven")
)
