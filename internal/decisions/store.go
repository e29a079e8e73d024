package decisions

import (
	"context"
	"errors"
	"time"

	"github.com/troupe-go/troupe/saga"
)

var (
	// ErrConflict is wrapped by the error of Save if a concurrent transaction has changed or started one of the sagas. It is also
	// wrapped by the error about a transaction that Postgres aborted because of another one, as in a deadlock. Run the whole
	// transaction again: it decides on the new state.
	ErrConflict = errors.New("the saga was changed meanwhile")
	// ErrRefused is wrapped by the error about a start or an operator's action that is not allowed; the error gives the reason.
	ErrRefused = errors.New("refused")
	// ErrNotFound is wrapped by the error about a saga or a definition that is not in the database.
	ErrNotFound = errors.New("not found in this database")
)

// Statuses has all statuses of a saga, first the four of sagas that have not ended.
var Statuses = []saga.Status{
	saga.Waiting, saga.Running, saga.Compensating, saga.Parked, saga.Completed, saga.Compensated, saga.Abandoned,
}

// Open has the statuses of sagas that have not ended.
var Open = Statuses[:4]

// A Store reads and writes sagas within one transaction, and does not end that transaction. So the writes of Save are committed
// together with the messages that follow from them, or not at all. Postgres and Memory implement it; one suite of tests checks
// both.
//
// Once a transaction has loaded a saga, no other transaction changes the saga until the first one ends: another Load of the saga waits,
// or its Save returns ErrConflict. Of two transactions that start a saga of one id, one gets ErrConflict. A Store need not be safe for
// concurrent use, since its transaction is not either.
type Store interface {
	// Now returns the time for decisions, by one clock for all users of the store. The time is not before the last Load.
	Now(ctx context.Context) (time.Time, error)
	// Load returns the sagas of ids that exist, in any order.
	Load(ctx context.Context, ids []string) ([]Record, error)
	// Save writes changes, each saga at most once. It is called at most once. ErrConflict may come later, from a later statement or the
	// commit. Save deletes the events that were stashed for a saga which ends and that can be for no other saga: shared ones, and the ones that
	// the key finds.
	Save(ctx context.Context, changes []Change) error

	// Associated returns, for each association, the ids of the sagas that it finds and that have not ended. stashed has the associations
	// that have stashed events for the next saga.
	Associated(ctx context.Context, as []Association) (found map[Association][]string, stashed map[Association]bool, err error)
	// Guard makes every other transaction that guards one of these associations wait until this one ends. An event that finds no saga and
	// the start of that saga both call Guard. So the later one sees the writes of the earlier one.
	Guard(ctx context.Context, as []Association) error
	// Stash stores events that came before their saga, or before the step that awaits them. An event that is stored already, by its hop, its
	// type and its message's id, is left unchanged.
	Stash(ctx context.Context, events []Stashed) error
	// StashBytes returns, for each saga of ids, the approximate size, as JSON, of the unexpired events of an association that the saga may use,
	// without e. An empty id stands for the next saga.
	StashBytes(ctx context.Context, a Association, ids []string, e saga.Event) (map[string]int64, error)
	// FindStashed returns the unexpired events that saga id may use, in the order in which they were stashed: the events for saga id, and the
	// events for the next saga by their association. The associations in fresh are new for the saga. An event for the next saga does not
	// expire while a saga has its association. An empty id stands for the next saga.
	FindStashed(ctx context.Context, id string, fresh []Association, q StashQuery) ([]Stashed, error)
	// DropStashed deletes e, which saga id has used: each copy that is for saga id, or for the next saga of an association in as.
	DropStashed(ctx context.Context, id string, as []Association, e saga.Event) error
	// LeftBy returns the associations by which the events that were stashed for saga id, which has ended, may be for another saga.
	LeftBy(ctx context.Context, id string) ([]Association, error)
	// OpenStashed makes events that were stashed for saga id events for the next saga of their association: the ones of messages, or all of them
	// if messages is nil. They expire after a time. Shared events, and events that the key finds, are left as they are.
	OpenStashed(ctx context.Context, id string, messages []saga.Event, after time.Duration) error

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
	// WakeAt is the time at which the saga's deadlines are checked next; zero: never.
	WakeAt time.Time
	// Owner names the other coordinator that has the saga. The fields besides ID and Owner then mean nothing to this coordinator. Owner is
	// empty if this coordinator has the saga.
	Owner string
}

// A Change has the changes that one transaction makes to one saga.
type Change struct {
	// Was is the version before the change; 0: the saga is new.
	Was     int
	State   saga.State
	Entries []Entry
	// WakeAt is as in Record.
	WakeAt time.Time
	// Associations are the new associations by which events find the saga, and Former the ones by which they do not find it any more. The
	// key is not among them.
	Associations, Former []Association
}

// An Entry of a saga's log records one change of the saga: a decision, or a move to another definition. Applying the entries in order,
// with saga.Decide and saga.Migrate, gives the saga's state.
type Entry struct {
	Version int           `json:"version"`
	At      time.Time     `json:"at"`
	Event   saga.Event    `json:"event"`
	Moments []saga.Moment `json:"moments"`
	// RecordedAt is the time at which the server wrote the entry, and Role the role that wrote it. The server sets both, whereas the
	// program that writes sets At and Event. Only sagadesk returns RecordedAt and Role. They are zero for an entry from before the
	// server recorded them.
	RecordedAt time.Time `json:"recorded_at,omitzero"`
	Role       string    `json:"role,omitempty"`
}

// Misdated reports whether At differs from RecordedAt by more than 10 minutes. A coordinator takes At from the database's
// clock, in the transaction that writes the entry.
func (e Entry) Misdated() bool {
	return !e.RecordedAt.IsZero() && e.RecordedAt.Sub(e.At).Abs() > 10*time.Minute
}

// An Association finds sagas of a type by the value of a variable. An empty Variable stands for the key.
type Association struct {
	Saga, Variable, Value string
}

// A StashQuery selects stashed events.
type StashQuery struct {
	// Wanted has the types of the events, and the associations by which events for the next saga are found. Nil: all events for the saga.
	Wanted []Wanted
	// After is the Position of an event: only later ones are found.
	After int64
	// Limit is the number of events; 0: no limit.
	Limit int
}

// A Wanted is a type of event that a saga awaits by an association.
type Wanted struct {
	Association
	Hop, Type string
}

// A Stashed is an event that came before the saga that awaits it, or before the step that awaits it.
type Stashed struct {
	Association
	Event saga.Event
	// For is the id of the saga that may use the event. It is empty if the event is for the next saga that awaits it by the association.
	For string
	// Shared reports that another saga has used the event, or has it too, by the same association. Then it is for no other saga when the
	// saga For ends.
	Shared bool
	// Expires is the time at which an event for the next saga expires. It does not expire while a saga runs that has the association.
	Expires time.Time
	// Position is the event's number in the order in which events were stashed. The store sets it.
	Position int64
}

// message returns the identity of the stashed message. The hop and the type are parts of it, since two hops may use equal ids.
func (s Stashed) message() string { return messageOf(s.Event) }

func messageOf(e saga.Event) string { return prefixOf(e.Hop, e.Type) + e.Message }

// prefixOf returns the beginning of the identity of each message of a type.
func prefixOf(hop, typ string) string { return hop + "/" + typ + "/" }
