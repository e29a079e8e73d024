package modeltest_test

import (
	"encoding/json"
	"fmt"
	"strings"
)

// plan is a history before it runs.
type plan struct {
	Setup setup
	Steps []step
}

// setup does not change in a history.
type setup struct {
	Local      bool  `json:",omitempty"` // work comes from troupe.local_work
	Moves      bool  `json:",omitempty"` // topics become local and go back to Kafka
	Batch      int   // Config.Batch
	Partitions int32 // of every topic
	Attempts   int   // Config.Retry.Attempts
	Immediate  int   // Config.Immediate
	Limited    bool  `json:",omitempty"` // handlers of commands from Kafka have a rate limit and a concurrency limit
	All        bool  `json:",omitempty"` // OnAll handles the events, not On and React
	Audit      bool  `json:",omitempty"` // a second group listens to the events
	Late       bool  `json:",omitempty"` // it starts at the step "audit", or at the end
	NoRelay    bool  `json:",omitempty"` // no relay runs until the end

	Setting, Value string `json:",omitempty"` // a default of the members' role, "" for none
}

// kinds of messages, by the handler that gets them.
const (
	kindAct      = "Act"      // a command, by Handle
	kindLoose    = "Loose"    // a command, by Handle with RetryTopics
	kindCall     = "Call"     // a command, by Call
	kindUndo     = "Undo"     // a compensation, by Handle
	kindHappened = "Happened" // an event, by On or OnAll
	kindReacted  = "Reacted"  // an event, by React or OnAll
)

// message is one message of a plan. N is its number, which its effects carry.
type message struct {
	N      int
	Kind   string
	Key    string `json:",omitempty"`
	Of     int    `json:",omitempty"` // an Act with the idempotency key of this earlier one, under an id of its own
	Saga   string `json:",omitempty"` // saga id; the step has one name
	Undone bool   `json:",omitempty"` // an event: of the step's compensation
	Doubt  bool   `json:",omitempty"` // HeaderDoubt of a compensation
	Second bool   `json:",omitempty"` // an event of the second hop
	Body   body
}

// body scripts the handler.
type body struct {
	N         int
	Do        string `json:",omitempty"` // one of the does, default succeed
	Fails     int    `json:",omitempty"` // the first so many attempts of each life fail
	Mended    bool   `json:",omitempty"` // fails unless redriven
	SlowMS    int    `json:",omitempty"` // sleeps in a statement
	LimitMS   int    `json:",omitempty"` // is rate limited until the message is so old
	Queued    bool   `json:",omitempty"` // writes its effect by Queue
	DueMS     int    `json:",omitempty"` // schedules a deadline
	Cancels   int    `json:",omitempty"` // cancels the deadline of this message
	Tells     string `json:",omitempty"` // writes another event, for this key
	AuditFine bool   `json:",omitempty"` // the audit group's handler succeeds whatever Do and Fails are
}

// The values of body.Do.
const (
	doRefuse    = "refuse"
	doPermanent = "permanent"
	doPanic     = "panic"
	doNothing   = "no outcome"
	doPlain     = "plain error" // OnAll does not name the message

	doSwallow = "swallowed time-out" // a query's own time-out, swallowed
	doRows    = "open rows"
	doCommit  = "raw commit"
	doLimit   = "own limit"      // SQLSTATE 53400
	doGone    = "other database" // SQLSTATE 57P01 of a connection that is not tx's
	doSet     = "set local"
	doGoexit  = "goexit"
)

// step is one step of a plan.
type step struct {
	Do       string
	Messages []message `json:",omitempty"` // send
	N        int       `json:",omitempty"` // which member, message or how many
	Die      string    `json:",omitempty"` // join: the hook in which the member dies
	Freeze   bool      `json:",omitempty"` // join: it stops there instead
	Older    bool      `json:",omitempty"` // join: a member of an earlier version, without Ask and the second hop's events
	Forget   bool      `json:",omitempty"` // rewind: the inbox's retention is over
	Peace    bool      `json:",omitempty"` // set back, go back: members stop before, and commit their offsets
	Rolling  bool      `json:",omitempty"` // become local, go back: members of both kinds run at once
}

func (p plan) String() string {
	var b strings.Builder
	line := func(v any) {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "  %s\n", text)
	}
	line(p.Setup)
	for _, s := range p.Steps {
		line(s)
	}
	return b.String()
}

func (m message) event() bool { return m.Kind == kindHappened || m.Kind == kindReacted }

// ordered reports whether m takes effect in the order of its key.
func (m message) ordered() bool { return m.Key != "" && m.Kind != kindLoose }
