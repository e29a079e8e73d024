package decisions

import (
	"context"
	"errors"
	"time"

	"github.com/troupe-go/troupe/saga"
)

var (
	// ErrConflict is wrapped by the error of Save if a concurrent transaction has changed or started one of the sagas, and by
	// the error about a transaction that was aborted because of another one, such as by a deadlock. Run the whole transaction
	// again: it decides on the new state.
	ErrConflict = errors.New("the saga was changed meanwhile")
	// ErrRefused is wrapped by the error about a start or an operator's action that is not allowed; the error gives the reason.
	ErrRefused = errors.New("refused")
	// ErrNotFound is wrapped by the error about a saga or a definition that is not in the database.
	ErrNotFound = errors.New("not found in this database")
)

// Statuses are all statuses of a saga. The first four are the statuses of sagas that have not ended.
var Statuses = []saga.Status{
	saga.Waiting, saga.Running, saga.Compensating, saga.Parked, saga.Completed, saga.Compensated, saga.Abandoned,
}

// Open are the statuses of sagas that have not ended.
var Open = Statuses[:4]

// A Store stores sagas within one transaction, which it does not end: what Save writes is committed with that transaction,
// together with the messages that follow from it, or not at all. Postgres and Memory implement it; the suite of package
// storetest checks the contract.
//
// Once a transaction has loaded a saga, no other one changes it until that transaction ends: another Load of it waits, or its
// Save returns ErrConflict. Of two transactions that start a saga of one id, one gets ErrConflict. A Store need not be safe
// for concurrent use; its transaction is not either.
type Store interface {
	// Now returns the time for decisions, by a clock that all users of the store share. It is not before the last Load.
	Now(ctx context.Context) (time.Time, error)
	// Load returns the sagas of ids that exist, in any order.
	Load(ctx context.Context, ids []string) ([]Record, error)
	// Save writes changes, each saga at most once, and is called at most once. ErrConflict may come later, from the
	// transaction.
	Save(ctx context.Context, changes []Change) error

	// Associated returns, for each association, the ids of the sagas that it finds and that have not ended.
	Associated(ctx context.Context, as []Association) (map[Association][]string, error)
	// Guard makes every other transaction that guards one of these associations wait until this one ends. So an event that finds no
	// saga, and the start of that saga, cannot miss each other.
	Guard(ctx context.Context, as []Association) error
	// Stash stores events that came before their saga. An event that is stored already, by its hop, its type and its
	// message's id, is left unchanged.
	Stash(ctx context.Context, events []Stashed) error
	// StashBytes returns about the bytes of JSON of the unexpired events that were stashed for an association.
	StashBytes(ctx context.Context, a Association) (int64, error)
	// Unstash deletes the events that were stashed for these associations, and returns the unexpired ones, in the order in
	// which they were stashed.
	Unstash(ctx context.Context, as []Association) ([]Stashed, error)

	// Lock gives saga id the lock name, or puts it at the end of the queue for it, and reports whether it has the lock.
	Lock(ctx context.Context, name, id string) (granted bool, err error)
	// Unlock releases the lock that a saga has or waits for, and returns the sagas that have been granted theirs as a result.
	Unlock(ctx context.Context, id string) (granted []string, err error)
	// Granted reports whether a saga has the lock that it waited for.
	Granted(ctx context.Context, id string) (bool, error)
}

// A Record is a saga as it is stored.
type Record struct {
	ID         string
	Definition string // hash
	State      []byte // JSON of saga.State
	// WakeAt is when its deadlines are checked next; zero: never.
	WakeAt time.Time
	// Owner names the other coordinator that the saga belongs to; then only ID is set. Empty: it belongs to this one.
	Owner string
}

// A Change has the changes that one transaction makes to one saga.
type Change struct {
	// Was is the version before; 0: the saga is new.
	Was     int
	State   saga.State
	Entries []Entry
	// WakeAt is as in Record.
	WakeAt time.Time
	// Associations are the new ones by which events find it, in addition to its id.
	Associations []Association
}

// An Entry of a saga's log is one decision: folding the events of all entries gives the saga's state.
type Entry struct {
	Version int           `json:"version"`
	At      time.Time     `json:"at"`
	Event   saga.Event    `json:"event"`
	Moments []saga.Moment `json:"moments"`
	// RecordedAt and Role are set by the server: when, and by which role, the entry was written. At and Event are set by the
	// program that writes. Only sagadesk returns RecordedAt and Role; they are zero for an entry from before the server
	// recorded them.
	RecordedAt time.Time `json:"recorded_at,omitzero"`
	Role       string    `json:"role,omitempty"`
}

// Misdated reports whether At differs from RecordedAt by more than 10 minutes. A coordinator takes At from the database's
// clock, in the transaction that writes the entry.
func (e Entry) Misdated() bool {
	return !e.RecordedAt.IsZero() && e.RecordedAt.Sub(e.At).Abs() > 10*time.Minute
}

// An Association is the value of a variable by which an event finds sagas of a type. An empty Variable is the key.
type Association struct {
	Saga, Variable, Value string
}

// A Stashed is an event that waits for its saga.
type Stashed struct {
	Association
	Event   saga.Event
	Expires time.Time
}

// message identifies the stashed message: two hops may give theirs equal ids.
func (s Stashed) message() string { return s.Event.Hop + "/" + s.Event.Type + "/" + s.Event.Message }
