package saga

import (
	"github.com/troupe-go/troupe/internal/expr"
)

// A Spec is a saga's definition as it is written, in Go or as JSON. Define checks and compiles it.
type Spec struct {
	// Saga is the name of the saga's type: 1 to 63 lower-case letters, digits and dashes.
	Saga string `json:"saga"`
	// Version is a number for people, from 1. A definition is identified by its hash, not by its Version.
	Version     int    `json:"version"`
	Description string `json:"description,omitempty"`
	// Key is the name of the variable, of type string, that identifies an instance: the flow's business key. There is one instance per
	// key, and all messages of the saga have this key.
	Key string `json:"key"`
	// Data declares the variables, with their types.
	Data map[string]Type `json:"data"`
	// Lock is an expression of type string over data, evaluated at the start. Of two sagas with the same result, the second waits until
	// the first has ended. Default: the saga takes no lock.
	Lock string `json:"lock,omitempty"`
	// Timeout limits the duration of the whole saga. After it the saga is compensated. With a Lock it counts from the time when the
	// saga has the lock. Default: no limit.
	Timeout Duration `json:"timeout,omitempty"`
	// Stash is the time for which an awaited event that comes before its saga is kept. Default: 1 h.
	Stash Duration `json:"stash,omitempty"`
	// Start lists the events that start an instance. If it is empty, only a call of the coordinator starts one. A coordinator reads a
	// topic of Kafka that its group has not consumed before from the topic's start: old events start instances too.
	Start     []Start    `json:"start,omitempty"`
	Steps     []Step     `json:"steps,omitempty"`
	Deadlines []Deadline `json:"deadlines,omitempty"`
	// Ends lists conditions. As soon as one holds, the saga ends before its steps are completed.
	Ends []End `json:"ends,omitempty"`
	// Cancel declares who can cancel the saga, and until which step. Default: no cancel is accepted; an operator may compensate the
	// saga.
	Cancel *Cancel `json:"cancel,omitempty"`
	// Completed and Compensated are the events that are emitted when the saga is completed or compensated.
	Completed   []Emit `json:"completed,omitempty"`
	Compensated []Emit `json:"compensated,omitempty"`
}

// A Type is the type of a variable: "string", "int" (64 bits), "double", "bool" or "any".
type Type = expr.Type

// These are the types of variables.
const (
	String = expr.String
	Int    = expr.Int
	Double = expr.Double
	Bool   = expr.Bool
	Any    = expr.Any
)

// A Mapping assigns expressions to names. The names are the fields of a command, computed from data, or variables, computed from the
// fields of an event.
type Mapping map[string]string

// Start is an event that starts an instance, unless an instance of its key exists.
type Start struct {
	Hop   string `json:"hop"`
	Event string `json:"event"`
	// When is a condition over event. An event for which it does not hold starts nothing.
	When string `json:"when,omitempty"`
	// Set computes variables from event, and must set the variable of the key.
	Set Mapping `json:"set"`

	of *body // set by StartOf
}

// A Step sends a command to a hop, or calls the hop's service by HTTP, and waits for the answer. A step with neither a command nor a call
// waits for an event. If such a step lists no events, it is done as soon as it begins: it only joins other steps.
type Step struct {
	Name string `json:"name"`
	// Needs has the names of the steps that come before this step. Join defines how many of them must be done.
	Needs []string `json:"needs,omitempty"`
	Join  Join     `json:"join,omitempty"`
	// AtLeast is a quorum: the number of steps in Needs that must be done. The step waits until each step in Needs is done, was
	// skipped, or is optional and has failed. As soon as the quorum cannot be reached any more, the step is refused: the saga is
	// compensated, or parked after the pivot; if the step is optional, the saga continues. A step with AtLeast has no Join. Default: no
	// quorum.
	AtLeast int `json:"atLeast,omitempty"`
	// When is a condition over data. If it does not hold, the step is skipped.
	When string `json:"when,omitempty"`
	// ForEach runs the step once for each element of a list. Default: the step runs once.
	ForEach *ForEach `json:"forEach,omitempty"`
	// Command is a message to a hop, and Call an HTTP request. A step with neither waits for one of the events in Success or Failure.
	Command *Command `json:"command,omitempty"`
	Call    *Call    `json:"call,omitempty"`
	// Success lists the events that complete the step, and Failure the events that refuse it.
	Success []Answer `json:"success,omitempty"`
	Failure []Answer `json:"failure,omitempty"`
	// Timeout counts from the start of the step. After it a command is in doubt: it may have taken effect, and is compensated. An
	// awaited event counts as refused. Default: no time-out.
	Timeout Duration `json:"timeout,omitempty"`
	// Retry sets how often and for how long the hop tries the command. Default: the hop's own settings.
	Retry *Retry `json:"retry,omitempty"`
	// Exhausted decides what follows when the hop has given up the command. Default: Park.
	Exhausted Exhausted `json:"exhausted,omitempty"`
	// Optional lets the saga go on without the step if the step is refused, is not answered in time or is given up by its hop. A
	// command that may have taken effect is compensated then. Without a compensation, an effect that comes late is kept.
	Optional bool `json:"optional,omitempty"`
	// Compensation undoes the step.
	Compensation *Compensation `json:"compensation,omitempty"`
	// Pivot marks the point of no return: once the step is done, the saga only goes forward.
	Pivot bool `json:"pivot,omitempty"`
	// Retriable states that the step succeeds if it is tried often enough: the business never refuses it.
	Retriable bool `json:"retriable,omitempty"`
	// Irreversible is the reason why the step needs no compensation.
	Irreversible string `json:"irreversible,omitempty"`
}

// Join defines how many of the steps in Needs must be done before a step begins.
type Join string

// These are the joins. A step whose join can no longer hold is skipped.
const (
	All   Join = ""      // all of them are done, except optional ones that have failed
	First Join = "first" // one of them is done
	Merge Join = "merge" // each of them is done, skipped, or optional and has failed; and one is done
)

// Exhausted decides what follows when a hop has given up a command.
type Exhausted string

// These are the values of Exhausted. In both cases the command has had no effect so far, and may have one when its dead letter is
// redriven.
const (
	Park           Exhausted = ""           // the saga waits for an operator, or for the answer to a redrive
	CompensateThen Exhausted = "compensate" // the saga is compensated, and so is the step, which is in doubt
)

// A Command is a message that is sent to a hop.
type Command struct {
	Hop  string `json:"hop"`
	Type string `json:"type"`
	// Input computes the fields of the message, over data and saga.
	Input Mapping `json:"input,omitempty"`

	of *body // set by CommandOf
}

// A Call is an HTTP request. The ambassador of the hop, a participant, makes it.
type Call struct {
	Hop    string `json:"hop"`
	Method string `json:"method"`
	// Endpoint is a path in which {variable} is replaced by the escaped value of a variable of data.
	Endpoint string `json:"endpoint"`
	// Body computes the fields of a JSON object, over data and saga. Without fields the request has no body.
	Body Mapping `json:"body,omitempty"`
}

// An Answer is an event that a step waits for. The headers of the answer to a command name the saga and the step.
type Answer struct {
	Event string `json:"event"`
	// Hop is the hop that emits the event. Default: the hop of the command.
	Hop string `json:"hop,omitempty"`
	// By defines how an event that answers no command finds its saga. Default: by its key, which is the saga's key.
	By *Association `json:"by,omitempty"`
	// When is a condition over event, data and saga. An event for which it does not hold is not this answer.
	When string `json:"when,omitempty"`
	// Set computes variables from event, data and saga. Only one step may set a variable. For a step with items see ForEach.
	Set Mapping `json:"set,omitempty"`
	// Reason computes the reason of a failure, over event, data and saga, of type string. Default: the type of the event.
	Reason string `json:"reason,omitempty"`
	// Form lets an operator give the event, by ActAnswer. Only an event of a step without a command may have one. If several answers of
	// a step have the same event, only the first of them may have the Form.
	Form *Form `json:"form,omitempty"`

	of *body // set by AnswerOf
}

// An Association finds a saga by the value of one of its variables.
type Association struct {
	Variable string `json:"variable"`
	// Field is the field of the event whose value equals the variable.
	Field string `json:"field"`
}

// A Retry sets how a hop tries a command. The wait between attempts doubles from Initial to Cap.
type Retry struct {
	Attempts int      `json:"attempts"`
	Initial  Duration `json:"initial"`
	Cap      Duration `json:"cap"`
	// Try limits the duration of one attempt.
	Try Duration `json:"try"`
}

// A Compensation undoes a step. If its answer is a failure, the saga is parked.
type Compensation struct {
	Command *Command `json:"command,omitempty"`
	Call    *Call    `json:"call,omitempty"`
	Success []Answer `json:"success,omitempty"`
	// Timeout limits the wait for the answer. After it the saga is parked. Default: no timeout.
	Timeout Duration `json:"timeout,omitempty"`
	Retry   *Retry   `json:"retry,omitempty"`
}

// A Deadline is a time limit for a part of the saga. It applies if none of the steps in Until is done in time.
type Deadline struct {
	Name  string   `json:"name"`
	After Duration `json:"after"`
	// Since is the step from whose start After counts. Default: the saga's start; with a Lock, the time when the saga has it.
	Since string `json:"since,omitempty"`
	// Until lists steps. When one of them is done, or is optional and has failed, the deadline is cancelled. The end of the saga always
	// cancels it.
	Until []string `json:"until,omitempty"`
	// Payload is evaluated when the deadline is scheduled, over data and saga. Expressions of Emit read it as deadline.
	Payload Mapping `json:"payload,omitempty"`
	Emit    []Emit  `json:"emit,omitempty"`
	// Then decides how the saga continues. A deadline with ThenComplete waits while the saga is parked, goes back or awaits the answer
	// to a compensation.
	Then Then `json:"then,omitempty"`
}

// Then decides how a saga continues after a deadline or an End.
type Then string

// These are the values of Then. Only a Deadline may have GoOn, which changes nothing.
const (
	GoOn           Then = ""
	ThenComplete   Then = "complete"
	ThenCompensate Then = "compensate"
	ThenPark       Then = "park"
)

// An End ends the saga when the condition When, over data and saga, holds. The condition does not hold while a variable that it reads
// is not set.
type End struct {
	When string `json:"when"`
	Then Then   `json:"then"`
	// Reason computes the stored reason, over data and saga, of type string. Default: the text of the condition.
	Reason string `json:"reason,omitempty"`
	// Emit is emitted instead of Completed. Only an End with ThenComplete may have it.
	Emit []Emit `json:"emit,omitempty"`
}

// Emit is an event for any hop that consumes it.
type Emit struct {
	Event string `json:"event"`
	// Hop is the hop in whose events topic the event is published. Default: the coordinator's hop.
	Hop string `json:"hop,omitempty"`
	// Failure sets the event's outcome to failure. Default: success.
	Failure bool `json:"failure,omitempty"`
	// Input computes the fields of the event, over data and saga, and for a deadline also over deadline.
	Input Mapping `json:"input,omitempty"`

	of *body // set by EmitOf
}
