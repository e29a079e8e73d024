package saga

import (
	"time"
)

// A State is what a saga has come to. It is a value: Decide never changes the one it is given.
type State struct {
	Saga string `json:"saga"`
	Key  string `json:"key"`
	// Definition is the hash of the definition it started with.
	Definition string `json:"definition"`
	// Correlation is the flow's that it began in; what follows from it keeps that. Empty in one of an earlier version.
	Correlation string `json:"correlation,omitempty"`
	// StartedWith is the DataHash of its Started event. Empty in one of an earlier version.
	StartedWith string `json:"started_with,omitempty"`
	// Version is how many decisions changed it.
	Version int    `json:"version"`
	Status  Status `json:"status"`
	// Back says that it goes, or was parked going, back.
	Back bool `json:"back,omitempty"`
	// Held says which deadline or end of the definition has parked it: no answer takes it up, a person does.
	Held string `json:"held,omitempty"`
	// Passed are the ends that parked it and that a person let it pass.
	Passed []string `json:"passed,omitempty"`
	// Reason is why it went back, ended early or is parked, the latest last.
	Reason string         `json:"reason,omitempty"`
	Data   map[string]any `json:"data"`
	// Steps are in the definition's order.
	Steps []StepState `json:"steps"`
	// Early are awaited events that came before their step began.
	Early []Event `json:"early,omitempty"`
	// Deadlines are those to come, by name.
	Deadlines []Armed   `json:"deadlines,omitempty"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
}

// ID names the saga among those of all types: its type, a slash and its key.
func (s State) ID() string { return s.Saga + "/" + s.Key }

// Ended says that nothing moves it any more.
func (s State) Ended() bool {
	return s.Status == Completed || s.Status == Compensated || s.Status == Abandoned
}

// Status is where a saga is.
type Status string

// Each saga ends as one of the last three. A parked one waits for a person, or for the answer to something that was
// redriven.
const (
	Waiting      Status = "waiting" // for what another saga has locked
	Running      Status = "running"
	Compensating Status = "compensating"
	Parked       Status = "parked"
	Completed    Status = "completed"
	Compensated  Status = "compensated" // all that had been done is undone
	Abandoned    Status = "abandoned"   // a person gave it up
)

// A StepState is what a step has come to.
type StepState struct {
	Name  string `json:"name"`
	Phase Phase  `json:"phase,omitempty"`
	// Started is the version of the saga at which it started; 0: it did not.
	Started int `json:"started,omitempty"`
	// Epoch and BackEpoch count how often a person had the command and the compensation sent again.
	Epoch     int `json:"epoch,omitempty"`
	BackEpoch int `json:"back_epoch,omitempty"`
	// Sent and BackSent are when the first command, and the first compensation, was sent of which nobody knows what became.
	// Zero where none was, and in a state of an earlier version.
	Sent     time.Time `json:"sent,omitzero"`
	BackSent time.Time `json:"back_sent,omitzero"`
	// Doubt says that nobody knows whether the command, or one before it, took effect or will.
	Doubt bool `json:"doubt,omitempty"`
	// Answer is the event that came last.
	Answer string `json:"answer,omitempty"`
}

// Phase is where a step is.
//
//	waiting ─► intent ─► done ─────────────► compensate_intent ─► compensated
//	   │          ├────► refused      │               └─────────► compensate_failed
//	skipped       ├────► exhausted ───┤ a person
//	              └────► doubt ───────┘
type Phase string

// The phases.
const (
	StepWaiting      Phase = ""
	Skipped          Phase = "skipped" // its condition or join does not hold, or the saga went back before it began
	Intent           Phase = "intent"  // its answer is awaited
	Done             Phase = "done"
	Refused          Phase = "refused"   // by the business: it had no effect
	GivenUp          Phase = "exhausted" // by its hop: it has had no effect so far
	Doubt            Phase = "doubt"     // no answer came in time
	CompensateIntent Phase = "compensate_intent"
	Undone           Phase = "compensated"
	CompensateFailed Phase = "compensate_failed"
)

// Armed is a deadline that is to come.
type Armed struct {
	Name    string         `json:"name"`
	At      time.Time      `json:"at"`
	Payload map[string]any `json:"payload,omitempty"`
	// Overdue reports that At has come and that the deadline waits until the saga, which is parked, is taken up.
	Overdue bool `json:"overdue,omitempty"`
}

// An Event is something that happened, for Decide.
type Event struct {
	Kind Kind `json:"kind"`
	// Step and Operation (forward or compensate) are of Answered and the actions on a step.
	Step      string `json:"step,omitempty"`
	Operation string `json:"operation,omitempty"`
	// Epoch of Answered is that of the command, as its Send had it: what an earlier one answers does not decide a later one.
	Epoch int `json:"epoch,omitempty"`
	// Outcome of Answered: success, failure or exhausted.
	Outcome string `json:"outcome,omitempty"`
	// Hop and Type say which message it was.
	Hop  string `json:"hop,omitempty"`
	Type string `json:"type,omitempty"`
	// Fields are the message's, of Started and Set the variables', of Skip and Resolve the step's outputs.
	Fields map[string]any `json:"fields,omitempty"`
	// Deadline is the name of the one that Fired.
	Deadline string `json:"deadline,omitempty"`
	// Keep of Fired keeps a deadline that cannot be met now as overdue. Without it, as in logs of earlier versions, the
	// deadline is gone.
	Keep bool `json:"keep,omitempty"`
	// Reason is given by a person, or by the hop that gave up.
	Reason string `json:"reason,omitempty"`
	// Actor is who acted.
	Actor string `json:"actor,omitempty"`
	// Happened is what Resolve says.
	Happened bool `json:"happened,omitempty"`
	// Locked says of Started that another saga has what this one locks.
	Locked bool `json:"locked,omitempty"`
	// Message is the id of the message, for the log. An action has one too: what follows from it has that as its cause.
	Message string `json:"message,omitempty"`
	// Correlation of Started is the flow's that the saga belongs to.
	Correlation string `json:"correlation,omitempty"`
	// DataHash of Started is that of Fields, by which a start that is repeated is told from one with other data.
	DataHash string `json:"data_hash,omitempty"`
	// From and To are the hashes of the definitions of Migrated.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// OtherData reports whether e starts a saga with other data than s was started with.
func (e Event) OtherData(s State) bool {
	return s.StartedWith != "" && e.DataHash != "" && e.DataHash != s.StartedWith
}

// Kind is what kind of event.
type Kind string

// The kinds; the last ones are actions of people.
const (
	Started  Kind = "started"  // the first of all
	Granted  Kind = "granted"  // it has its lock
	Answered Kind = "answered" // a command or compensation
	Observed Kind = "observed" // an awaited event
	Fired    Kind = "fired"    // a deadline
	Migrated Kind = "migrated" // to another definition: by Migrate, and not by Decide

	ActRetry      Kind = "retry"      // send a step's command, or its compensation, again
	ActSkip       Kind = "skip"       // go on as if a step had been done, or undone
	ActResolve    Kind = "resolve"    // a step in doubt did happen, or did not
	ActCompensate Kind = "compensate" // go back
	ActResume     Kind = "resume"     // go on, since what parked it is mended
	ActSet        Kind = "set"        // give variables another value
	ActAbandon    Kind = "abandon"    // end it as it is
)

// Action says whether k is a person's.
func (k Kind) Action() bool {
	switch k {
	case ActRetry, ActSkip, ActResolve, ActCompensate, ActResume, ActSet, ActAbandon:
		return true
	}
	return false
}

// Effects are what follows from a decision, to be done in the transaction that keeps the state. The zero value is nothing.
type Effects struct {
	Commands  []Send // in this order
	Events    []Emitted
	Scheduled []Armed
	Cancelled []string // deadlines
	Met       []string // deadlines
	Moments   []Moment // for people, in this order
	// Unlock says that what the saga had locked is free.
	Unlock bool
	// Alert is why a person must act; "": nobody must.
	Alert string
	// Ignored is why the event changed nothing, such as a duplicate's.
	Ignored string
	// Refused is why a person's action cannot be done, or why the saga cannot start or keep the event. Then nothing has changed.
	Refused string
}

// A Send is a command on its way.
type Send struct {
	Step      string
	Operation string // forward or compensate
	Epoch     int
	Hop       string
	Type      string
	Fields    map[string]any
	Retry     *Retry
	// Doubt says of a compensation that nobody knows whether its forward call took effect, or ever will, and that the
	// same hop is asked, which can tell.
	Doubt bool
	// Since is when the first call was sent that may have been answered, where that was before this one.
	Since time.Time
}

// Emitted is an event on its way. An empty Hop is the coordinator's own.
type Emitted struct {
	Hop     string
	Type    string
	Failure bool
	Fields  map[string]any
}

// A Moment is an entry of the saga's history.
type Moment struct {
	What string `json:"what"`
	Step string `json:"step,omitempty"`
	Why  string `json:"why,omitempty"`
}

// The moments.
const (
	SagaStarted           = "SagaStarted"
	SagaWaiting           = "SagaWaiting"
	SagaGranted           = "SagaGranted"
	SagaCompensating      = "SagaCompensating"
	SagaParked            = "SagaParked"
	SagaResumed           = "SagaResumed"
	SagaCompleted         = "SagaCompleted"
	SagaCompensated       = "SagaCompensated"
	SagaAbandoned         = "SagaAbandoned"
	SagaMigrated          = "SagaMigrated"
	VariablesSet          = "VariablesSet"
	StepStarted           = "StepStarted"
	StepCompleted         = "StepCompleted"
	StepFailed            = "StepFailed"
	StepSkipped           = "StepSkipped"
	StepExhausted         = "StepExhausted"
	StepTimedOut          = "StepTimedOut"
	StepResolved          = "StepResolved"
	CompensationStarted   = "CompensationStarted"
	CompensationCompleted = "CompensationCompleted"
	CompensationFailed    = "CompensationFailed"
	DeadlineMet           = "DeadlineMet"
	DeadlineKept          = "DeadlineKept" // until the parked saga is taken up
)
