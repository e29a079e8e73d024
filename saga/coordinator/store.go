package coordinator

import (
	"context"
	"errors"
	"time"

	"github.com/troupe-go/troupe/saga"
)

// ErrConflict is wrapped by the error of Save when somebody else changed or started one of the sagas meanwhile, and by the
// errors of Start and Act also when the transaction had to give way to another, each waiting for the other. Trying the whole
// transaction again decides anew.
var ErrConflict = errors.New("the saga was changed meanwhile")

// A Store keeps sagas within one transaction, which it does not end: what Save was given is there when that commits,
// together with the messages that follow from it, or not at all. Package coordinator has two, Postgres and Memory, and
// storetest's suite says what a third one must hold.
//
// Whoever has loaded a saga is the only one who changes it until the transaction ends: another Load of it waits, or its
// Save gives ErrConflict. Of two that start a saga of one id, one gets ErrConflict. A Store need not be safe for concurrent
// use; its transaction is not either.
type Store interface {
	// Now is the time that decisions are made at, by a clock that all who share the store have in common. It is not before
	// the last Load.
	Now(ctx context.Context) (time.Time, error)
	// Load gives the sagas of ids that there are, in any order.
	Load(ctx context.Context, ids []string) ([]Record, error)
	// Save writes changes. Each saga is in it at most once, and it is called at most once. ErrConflict may come later, from
	// the transaction.
	Save(ctx context.Context, changes []Change) error

	// Associated gives the ids of sagas that have not ended and are found by what each association says.
	Associated(ctx context.Context, as []Association) (map[Association][]string, error)
	// Guard lets nobody else guard these associations until the transaction ends: so an event that finds no saga, and the
	// start of that saga, see each other.
	Guard(ctx context.Context, as []Association) error
	// Stash keeps events that came before their saga. One that is there already, by its message's id, is left alone.
	Stash(ctx context.Context, events []Stashed) error
	// Unstash takes what was stashed for these associations and has not expired, in the order in which it came.
	Unstash(ctx context.Context, as []Association) ([]Stashed, error)

	// Lock lets a saga have what name stands for, or wait for it behind others, and says whether it has it.
	Lock(ctx context.Context, name, id string) (granted bool, err error)
	// Unlock gives up what a saga has or waits for, and says which sagas have what they waited for now.
	Unlock(ctx context.Context, id string) (granted []string, err error)
	// Granted says whether a saga has what it waited for.
	Granted(ctx context.Context, id string) (bool, error)
}

// A Record is a saga as it is stored.
type Record struct {
	ID         string
	Definition string // hash
	State      []byte // JSON of saga.State
	// WakeAt is when its deadlines are looked at next; zero: never.
	WakeAt time.Time
	// Owner names another coordinator that the saga belongs to; then ID is all else that is set. Empty: it is this one's.
	Owner string
}

// A Change is what one transaction makes of one saga.
type Change struct {
	// Was is the version before; 0: it is new.
	Was     int
	State   saga.State
	Entries []Entry
	// WakeAt is as in Record.
	WakeAt time.Time
	// Associations by which it is found, beside its id, that are new.
	Associations []Association
}

// An Entry of a saga's log is one decision: folding the events of all of them gives the saga's state.
type Entry struct {
	Version int           `json:"version"`
	At      time.Time     `json:"at"`
	Event   saga.Event    `json:"event"`
	Moments []saga.Moment `json:"moments"`
	// RecordedAt and Role are the server's: when, and by which role, the entry was written. At and Event are what the writing
	// program states. Both are set by Desk.Log only, and zero for an entry from before the server recorded them.
	RecordedAt time.Time `json:"recorded_at,omitzero"`
	Role       string    `json:"role,omitempty"`
}

// Misdated reports whether At differs from RecordedAt by more than 10 minutes. A coordinator takes At from the database's clock, in
// the transaction that writes the entry.
func (e Entry) Misdated() bool {
	return !e.RecordedAt.IsZero() && e.RecordedAt.Sub(e.At).Abs() > 10*time.Minute
}

// An Association is the value of a variable by which an event finds sagas of a type. An empty Variable is the key.
type Association struct {
	Saga, Variable, Value string
}

// Stashed is an event that waits for its saga.
type Stashed struct {
	Association
	Event   saga.Event
	Expires time.Time
}
