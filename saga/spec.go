package saga

import (
	"github.com/troupe-go/troupe/internal/expr"
)

// A Spec is a definition as it is written, in Go or as JSON: one tree. Define checks it.
type Spec struct {
	// Saga is the type's name: letters, digits and dashes, in lower case.
	Saga string `json:"saga"`
	// Version is counted by people; what tells definitions apart is their hash.
	Version     int    `json:"version"`
	Description string `json:"description,omitempty"`
	// Key is the variable that names an instance, of type string: the flow's business key. There is one instance of a
	// saga for each key, and the key is that of all its messages.
	Key string `json:"key"`
	// Data are the variables, with their types.
	Data map[string]Type `json:"data"`
	// Lock is an expression of type string over data as it is at the start: what of two sagas only one may work on at a
	// time. The second waits until the first has ended.
	Lock string `json:"lock,omitempty"`
	// Timeout of the whole: then it is compensated. 0: none.
	Timeout Duration `json:"timeout,omitempty"`
	// Stash is how long an awaited event that comes before its saga is kept. Default 1 h.
	Stash Duration `json:"stash,omitempty"`
	// Start are the events that start an instance; none where only a call does.
	Start     []Start    `json:"start,omitempty"`
	Steps     []Step     `json:"steps,omitempty"`
	Deadlines []Deadline `json:"deadlines,omitempty"`
	// Ends end the saga at once when a condition holds, before its steps are through.
	Ends []End `json:"ends,omitempty"`
	// Completed and Compensated are the events that are emitted at those ends.
	Completed   []Emit `json:"completed,omitempty"`
	Compensated []Emit `json:"compensated,omitempty"`
}

// A Type is a variable's: "string", "int" (64 bits), "double", "bool" or "any".
type Type = expr.Type

// The types of variables.
const (
	String = expr.String
	Int    = expr.Int
	Double = expr.Double
	Bool   = expr.Bool
	Any    = expr.Any
)

// A Mapping gives names their values, by expressions: a command's fields from data, variables from an event's fields.
type Mapping map[string]string

// Start is an event that starts an instance, unless there is one of its key.
type Start struct {
	Hop   string `json:"hop"`
	Event string `json:"event"`
	// When is a condition over event: otherwise it starts nothing.
	When string `json:"when,omitempty"`
	// Set gives variables from event, at least the one that is the key.
	Set Mapping `json:"set"`

	of *body // where StartOf made it
}

// A Step is what is asked of a hop, or awaited of it, or both. One without either is a place where others meet.
type Step struct {
	Name string `json:"name"`
	// Needs are the steps that come before it. Join says what of them it needs.
	Needs []string `json:"needs,omitempty"`
	Join  Join     `json:"join,omitempty"`
	// When is a condition over data. Where it does not hold, the step is skipped.
	When string `json:"when,omitempty"`
	// Command is sent, or Call is made by HTTP; a step that has neither waits for an event of Success or Failure.
	Command *Command `json:"command,omitempty"`
	Call    *Call    `json:"call,omitempty"`
	// Success are the events by which the step is done, Failure those by which it is refused.
	Success []Answer `json:"success,omitempty"`
	Failure []Answer `json:"failure,omitempty"`
	// Timeout is counted from the start of the step. After that a command is in doubt: it may have taken effect, and is
	// compensated; an awaited event counts as refused.
	Timeout Duration `json:"timeout,omitempty"`
	// Retry is how the hop tries the command. Default: as it is set there.
	Retry *Retry `json:"retry,omitempty"`
	// Exhausted says what follows when the hop has given the command up.
	Exhausted Exhausted `json:"exhausted,omitempty"`
	// Compensation undoes the step.
	Compensation *Compensation `json:"compensation,omitempty"`
	// Pivot is the point of no return: when it is done, the saga only goes forward.
	Pivot bool `json:"pivot,omitempty"`
	// Retriable says that the step succeeds at last, if it is tried often enough: no business refuses it.
	Retriable bool `json:"retriable,omitempty"`
	// Irreversible is why the step needs no compensation.
	Irreversible string `json:"irreversible,omitempty"`
}

// Join says what a step needs of the steps before it.
type Join string

// The joins. A step whose join can no longer hold is skipped.
const (
	All   Join = ""      // all of them done
	First Join = "first" // one of them done
	Merge Join = "merge" // all of them done or skipped, and one done
)

// Exhausted says what follows when a hop has given a command up.
type Exhausted string

// What follows. Either way the command had no effect, and it still may when its dead letter is redriven.
const (
	Park           Exhausted = ""           // a person must act
	CompensateThen Exhausted = "compensate" // what was done is undone
)

// A Command is a message to a hop.
type Command struct {
	Hop  string `json:"hop"`
	Type string `json:"type"`
	// Input gives its fields, over data and saga.
	Input Mapping `json:"input,omitempty"`

	of *body // where CommandOf made it
}

// A Call is a request by HTTP that a participant makes, the ambassador of its hop.
type Call struct {
	Hop    string `json:"hop"`
	Method string `json:"method"`
	// Endpoint is a path in which {variable} stands for a variable of data, escaped.
	Endpoint string `json:"endpoint"`
	// Body gives the fields of a JSON object, over data and saga. Without any there is no body.
	Body Mapping `json:"body,omitempty"`
}

// An Answer is an event that is awaited. The answer to a command is known by its headers.
type Answer struct {
	Event string `json:"event"`
	// Hop is whose event it is. Default: the command's.
	Hop string `json:"hop,omitempty"`
	// By says how an event that answers no command finds its saga. Default: the event's key is the saga's.
	By *Association `json:"by,omitempty"`
	// When is a condition over event and data: otherwise it is another one.
	When string `json:"when,omitempty"`
	// Set gives variables from event and data. Each variable has one step that sets it.
	Set Mapping `json:"set,omitempty"`
	// Reason is why, over event and data, of type string; for failures. Default: the event's name.
	Reason string `json:"reason,omitempty"`

	of *body // where AnswerOf made it
}

// An Association finds a saga by one of its variables.
type Association struct {
	Variable string `json:"variable"`
	// Field of the event that has the same value.
	Field string `json:"field"`
}

// A Retry is how a hop tries a command: the waits double from Initial to Cap.
type Retry struct {
	Attempts int      `json:"attempts"`
	Initial  Duration `json:"initial"`
	Cap      Duration `json:"cap"`
	// Try is how long one attempt may take.
	Try Duration `json:"try"`
}

// A Compensation undoes a step. What it answers with failure parks the saga.
type Compensation struct {
	Command *Command `json:"command,omitempty"`
	Call    *Call    `json:"call,omitempty"`
	Success []Answer `json:"success,omitempty"`
	// Timeout parks the saga.
	Timeout Duration `json:"timeout,omitempty"`
	Retry   *Retry   `json:"retry,omitempty"`
}

// A Deadline is what happens when nothing else does.
type Deadline struct {
	Name  string   `json:"name"`
	After Duration `json:"after"`
	// Since is the step from whose start it counts. Default: the saga's start.
	Since string `json:"since,omitempty"`
	// Until are steps that cancel it when they are done. The saga's end always does.
	Until []string `json:"until,omitempty"`
	// Payload is evaluated when it is scheduled, over data and saga; Emit reads it as deadline.
	Payload Mapping `json:"payload,omitempty"`
	Emit    []Emit  `json:"emit,omitempty"`
	// Then is what becomes of the saga. While the saga is parked, a deadline with ThenComplete waits until it is taken up.
	Then Then `json:"then,omitempty"`
}

// Then is what follows.
type Then string

// What follows.
const (
	GoOn           Then = ""
	ThenComplete   Then = "complete"
	ThenCompensate Then = "compensate"
	ThenPark       Then = "park"
)

// An End ends the saga when When holds, over data. Where a variable that it reads is not set, it does not hold yet.
type End struct {
	When string `json:"when"`
	Then Then   `json:"then"`
	// Reason is kept, of type string over data.
	Reason string `json:"reason,omitempty"`
	// Emit is emitted instead of Completed.
	Emit []Emit `json:"emit,omitempty"`
}

// Emit is an event to whom it may concern.
type Emit struct {
	Event string `json:"event"`
	// Hop whose event it is. Default: the coordinator's own.
	Hop string `json:"hop,omitempty"`
	// Failure says that its outcome is failure; else it is success.
	Failure bool `json:"failure,omitempty"`
	// Input gives its fields, over data, saga and, of a deadline, deadline.
	Input Mapping `json:"input,omitempty"`

	of *body // where EmitOf made it
}
