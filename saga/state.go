package saga

import (
	"time"
)

// A State is the state of one saga. It is a value: Decide does not change its argument, but returns another State.
type State struct {
	Saga string `json:"saga"`
	Key  string `json:"key"`
	// Definition is the hash of the definition that the saga runs on.
	Definition string `json:"definition"`
	// Correlation is the correlation id of the flow in which the saga started. The saga's messages have that id. It is empty in a state
	// of an earlier version.
	Correlation string `json:"correlation,omitempty"`
	// StartedWith is the DataHash of the saga's Started event. It is empty in a state of an earlier version.
	StartedWith string `json:"started_with,omitempty"`
	// Version counts the decisions and migrations that changed the saga.
	Version int    `json:"version"`
	Status  Status `json:"status"`
	// Back reports that the saga goes back: it compensates, or was compensating when it was parked.
	Back bool `json:"back,omitempty"`
	// Held is set if only an operator can resume the parked saga, and no answer can. It names the cause: a deadline, the deadlines that
	// could not be scheduled when the saga got its lock, the condition of an end, or a step whose effect differs from the saga's decisions,
	// as after a database was set back.
	Held string `json:"held,omitempty"`
	// Passed lists the conditions of ends that have parked the saga, also since a pivot was done and it could not be compensated, and for which
	// an operator has resumed it. They do not park it again.
	Passed []string `json:"passed,omitempty"`
	// Cancel is the result of the latest cancel that was accepted or refused. It is empty if no cancel was accepted or refused.
	Cancel CancelResult `json:"cancel,omitempty"`
	// Reason is the reason why the saga compensates, ended early or is parked. The latest of several reasons comes last.
	Reason string         `json:"reason,omitempty"`
	Data   map[string]any `json:"data"`
	// Steps are in the definition's order. After them come the items of each step with ForEach that has begun, such as seat[0],
	// in the order of the steps and of their lists.
	Steps []StepState `json:"steps"`
	// Lists holds, by the name of the step, the list with which each step with ForEach began.
	Lists map[string]any `json:"lists,omitempty"`
	// Deadlines are the scheduled deadlines and the overdue ones, ordered by name.
	Deadlines []Armed   `json:"deadlines,omitempty"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	// Erased is the time at which an operator erased the data of the ended saga: Data, and everything else that came from messages. It is
	// zero if the data was not erased.
	Erased time.Time `json:"erased,omitzero"`
}

// ID returns the id of the saga among all sagas of all types: type, slash, key.
func (s State) ID() string { return s.Saga + "/" + s.Key }

// Ended reports whether the saga has ended, so that no event changes it any more.
func (s State) Ended() bool {
	return s.Status == Completed || s.Status == Compensated || s.Status == Abandoned
}

// Status is the status of a saga.
type Status string

// These are the statuses. Each saga ends with one of the last three. A parked saga waits for an operator or for a late answer,
// such as the outcome of a redriven dead letter.
const (
	Waiting      Status = "waiting" // for the lock that another saga holds
	Running      Status = "running"
	Compensating Status = "compensating"
	Parked       Status = "parked"
	Completed    Status = "completed"
	Compensated  Status = "compensated" // all completed steps that have a compensation are compensated
	Abandoned    Status = "abandoned"   // ended by an operator
)

// A StepState is the state of one step.
type StepState struct {
	Name  string `json:"name"`
	Phase Phase  `json:"phase,omitempty"`
	// Started is the version of the saga at which the step started; 0: it did not start.
	Started int `json:"started,omitempty"`
	// Epoch counts how often an operator sent the command again, and BackEpoch how often an operator sent the compensation again.
	Epoch     int `json:"epoch,omitempty"`
	BackEpoch int `json:"back_epoch,omitempty"`
	// First is the epoch of the first command whose result is unknown. BackFirst is the same for the compensation. A command that is
	// sent again also names the idempotency key of that epoch, so that a service outside recognises the repeated call.
	First     int `json:"first,omitempty"`
	BackFirst int `json:"back_first,omitempty"`
	// Succeeded is the epoch of the command that succeeded, by its answer; -1: an operator has stated that the step took effect. BackSucceeded is
	// the epoch of the compensation that succeeded.
	Succeeded     int `json:"succeeded,omitempty"`
	BackSucceeded int `json:"back_succeeded,omitempty"`
	// Sent is the time of the first command whose result is unknown or has been. BackSent is the same for the compensation. They are
	// zero if none was sent, and in a state of an earlier version.
	Sent     time.Time `json:"sent,omitzero"`
	BackSent time.Time `json:"back_sent,omitzero"`
	// Doubt reports that the command, or an earlier one of this step, may have taken effect or may still do so.
	Doubt bool `json:"doubt,omitempty"`
	// Tolerated reports that the step is optional and did not succeed, and that the saga goes on without it.
	Tolerated bool `json:"tolerated,omitempty"`
	// Answer is the type of the latest answer.
	Answer string `json:"answer,omitempty"`
	// Message, for a step that waits for an event, is the id of the message that the step has used. If the same message comes to the saga
	// again, for example by another variable, no step uses it.
	Message string `json:"message,omitempty"`
}

// Phase is the state of a step.
//
//	waiting ─► intent ─► done ─────────────► compensate_intent ─► compensated
//	   │          ├────► refused      │               └─────────► compensate_failed
//	skipped       ├────► exhausted ───┤ an operator
//	              └────► doubt ───────┘
//
// A refused step, and one in doubt, may be Tolerated.
type Phase string

// These are the phases.
const (
	StepWaiting      Phase = ""
	Skipped          Phase = "skipped" // not begun: its condition or join does not hold, or the saga goes back or has ended; or its event is no longer awaited
	Intent           Phase = "intent"  // the command is sent, or the event is awaited
	Done             Phase = "done"
	Refused          Phase = "refused"   // refused by the business: it had no effect
	GivenUp          Phase = "exhausted" // given up by its hop, without an effect so far; or the definition cannot use its answer
	Doubt            Phase = "doubt"     // its command may have taken effect, or may still do so
	CompensateIntent Phase = "compensate_intent"
	Undone           Phase = "compensated"
	CompensateFailed Phase = "compensate_failed"
)

// Armed is a scheduled deadline.
type Armed struct {
	Name    string         `json:"name"`
	At      time.Time      `json:"at"`
	Payload map[string]any `json:"payload,omitempty"`
	// Overdue reports that At has passed, and that the deadline waits until the saga can apply it. For example, a parked saga must be
	// resumed first.
	Overdue bool `json:"overdue,omitempty"`
}

// An Event is an input of Decide: something that happened to a saga.
type Event struct {
	Kind Kind `json:"kind"`
	// Step and Operation (forward or compensate) are set for Answered. The actions on a step set Step too.
	Step      string `json:"step,omitempty"`
	Operation string `json:"operation,omitempty"`
	// Epoch, for Answered, is the epoch of the command that was answered, as in its Send. A failure of an earlier command does not
	// decide a later one.
	Epoch int `json:"epoch,omitempty"`
	// Outcome, for Answered, is success, failure or exhausted.
	Outcome string `json:"outcome,omitempty"`
	// Hop and Type are the sender and the type of the message. For ActAnswer only Type is set.
	Hop  string `json:"hop,omitempty"`
	Type string `json:"type,omitempty"`
	// Key, for Observed, is the key of the message. A step takes the event only if the event is for this saga: by this key, or by the
	// value of a variable, as By of the step's Answer declares. If Key is nil, as in logs of earlier versions, the event is for this
	// saga.
	Key *string `json:"key,omitempty"`
	// Answers, for Observed, is the id of the saga whose command the message answers. That saga ignores this event, since it gets the
	// message as Answered too.
	Answers string `json:"answers,omitempty"`
	// Fields are the fields of the message. For Started and ActSet they are variables. For ActSkip and ActResolve they are the
	// variables that the step's answer would have set.
	Fields map[string]any `json:"fields,omitempty"`
	// Deadline, for Fired, is the name of the deadline.
	Deadline string `json:"deadline,omitempty"`
	// Keep, for Fired, keeps a deadline that cannot be applied now, as overdue. Without Keep, as in logs of earlier versions, such a
	// deadline is dropped.
	Keep bool `json:"keep,omitempty"`
	// Reason is the reason that an operator gives for an action, or that a hop gives when it gives up a command.
	Reason string `json:"reason,omitempty"`
	// Actor, for an action, is the name of the operator.
	Actor string `json:"actor,omitempty"`
	// Happened, for ActResolve, states whether the command or the compensation took effect.
	Happened bool `json:"happened,omitempty"`
	// Locked, for Started, reports that another saga holds the lock that this one needs.
	Locked bool `json:"locked,omitempty"`
	// Limit is the number of bytes as JSON that a command or an emitted event may have. 0: no limit. If one has more, the saga is parked. The
	// log has the limit only of a decision that has parked its saga.
	Limit int `json:"limit,omitempty"`
	// Message is the id of the message, for the log. An action has an id too: the messages that follow from it have this id as their
	// cause.
	Message string `json:"message,omitempty"`
	// Correlation, for Started, is the correlation id of the flow to which the saga belongs.
	Correlation string `json:"correlation,omitempty"`
	// DataHash, for Started, is the hash of Fields. It distinguishes a repeated start from a start with other data.
	DataHash string `json:"data_hash,omitempty"`
	// From and To, for Migrated, are the hashes of the two definitions.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// OtherData reports whether e starts a saga with other data than s was started with. It is false if one of the two has no hash of its
// data.
func (e Event) OtherData(s State) bool {
	return s.StartedWith != "" && e.DataHash != "" && e.DataHash != s.StartedWith
}

// Kind is the kind of an Event.
type Kind string

// These are the kinds. The kinds that begin with Act are the actions of operators.
const (
	Started  Kind = "started"  // the saga started; always the first event
	Granted  Kind = "granted"  // the saga got its lock
	Answered Kind = "answered" // a hop answered a command or a compensation
	Observed Kind = "observed" // an awaited event arrived
	Fired    Kind = "fired"    // a deadline is due
	Migrated Kind = "migrated" // the saga was moved to another definition: applied by Migrate, not by Decide

	ActRetry      Kind = "retry"      // send a step's command, or its compensation, again
	ActSkip       Kind = "skip"       // continue as if a step were done, or compensated
	ActResolve    Kind = "resolve"    // state whether a step in doubt took effect
	ActCompensate Kind = "compensate" // compensate the saga
	ActResume     Kind = "resume"     // continue a parked saga after its cause was removed
	ActCancel     Kind = "cancel"     // cancel the saga, as its definition declares it
	ActAnswer     Kind = "answer"     // give the event that a step awaits, by its Form
	ActSet        Kind = "set"        // set variables to other values
	ActAbandon    Kind = "abandon"    // end the saga in its present state
)

// Action reports whether k is an operator's action.
func (k Kind) Action() bool {
	switch k {
	case ActRetry, ActSkip, ActResolve, ActCompensate, ActResume, ActCancel, ActAnswer, ActSet, ActAbandon:
		return true
	}
	return false
}

// Effects are the results of a decision. The caller of Decide carries them out in the transaction that stores the state. The zero value
// has no effects.
type Effects struct {
	Commands  []Send // in the order in which they are sent
	Events    []Emitted
	Scheduled []Armed
	Cancelled []string // the names of deadlines that are not to come any more
	Met       []string // the names of deadlines that have been applied
	Moments   []Moment // entries of the history, in order
	// Size is the approximate number of bytes of the event's fields and of the bodies of Commands and Events, as JSON.
	Size int
	// Unlock reports that the saga releases its lock.
	Unlock bool
	// Alert is the reason why an operator must act, or an empty text.
	Alert string
	// Ignored is the reason why the event changed nothing, such as that it is a duplicate.
	Ignored string
	// Early reports that the ignored event comes too early: keep it and apply it again later. An awaited event is early if a step will wait
	// for it that has not begun. Apply it again when AwaitedNow has its type. An answer is early if the saga has not sent the command
	// yet. That happens if the database has lost the saga's last decisions. The saga will send the command again, and the hop will not
	// answer a second time.
	Early bool
	// Refused is the reason why an action cannot be done, a saga cannot start, or an effect cannot be compensated any more. Then nothing has
	// changed.
	Refused string
}

// A Send is a command to be sent.
type Send struct {
	Step      string
	Operation string // forward, or compensate for a compensation
	Epoch     int
	// First is the epoch of the first call of this operation whose result may be unknown: this call or an earlier one.
	First  int
	Hop    string
	Type   string
	Fields map[string]any
	Retry  *Retry
	// Doubt is set only for a compensation. It reports that the step's command may have taken effect, or may still do so, and that the
	// compensation goes to the hop that got this command. That hop knows whether the command took effect.
	Doubt bool
	// Since is the time of the first call whose result may be unknown: for a compensation with Doubt its forward call, else the first
	// call of this operation. It is zero for the first command of a step.
	Since time.Time
}

// Emitted is an event to be sent. If Hop is empty, it is an event of the coordinator's hop.
type Emitted struct {
	// Path names the part of the definition that lists the event, such as completed[0]. For a deadline the path has the deadline's name
	// and the step from which it counts: deadlines.late.since.payment.emit[0]. A saga emits each part at most once, also after a move
	// to another definition.
	Path    string
	Hop     string
	Type    string
	Failure bool
	Fields  map[string]any
}

// A Moment is an entry of the saga's history. Its name, What, is SagaStarted, SagaWaiting, SagaGranted, SagaCompensating,
// SagaParked, SagaResumed, SagaCompleted, SagaCompensated, SagaAbandoned or SagaMigrated; CancelAccepted or CancelRefused;
// VariablesSet; StepStarted, StepCompleted, StepFailed, StepSkipped, StepExhausted, StepTimedOut, StepTolerated (the saga goes
// on without an optional step that failed) or StepResolved; CompensationStarted, CompensationCompleted or CompensationFailed;
// DeadlineMet or DeadlineKept (until the saga can apply the deadline).
type Moment struct {
	What string `json:"what"`
	Step string `json:"step,omitempty"`
	Why  string `json:"why,omitempty"`
}
