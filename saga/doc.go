// Package saga defines orchestrated flows: which command follows which answer, and how completed steps are compensated when a
// later one fails. It contains only the definition and the decision, without a clock, a database or Kafka. The decision
// is one function, with which all packages about sagas decide:
//
//	Decide(definition, state, event, now) ─► (state, effects)
//
// Package coordinator runs sagas. Package verify checks a definition before it runs, explore searches its possible executions, and
// sagatest tests a saga in virtual time.
//
// # A saga
//
// A Spec is written in Go or as JSON, and Define or Parse makes a Definition of it. A saga has variables (data), and steps that
// form a graph (needs). A step sends a command to a hop, or calls a service by HTTP, or waits for an event. The answer to a step
// sets variables, and the step's compensation undoes it. Expressions are CEL (cel.dev): data.amount_cents < 10000.
//
// A step begins when the steps that it needs are done and its condition (when) holds. If the condition does not hold, the step is
// skipped. When every step is done or skipped, the saga is completed.
//
// # Failures
//
//	event                                 effect
//	a step is refused (failure)           the steps that are done are compensated, each one after all steps that came after it
//	a step is not answered in time        it is in doubt: it is compensated too
//	an awaited event does not come in     as if the step were refused
//	time
//	an optional step is refused, is not   the saga goes on without it; if it may have taken effect, it is compensated, and a later
//	answered in time, or is given up      answer is ignored; without a compensation, a later success is kept
//	so many steps fail that a quorum      the step with the quorum is refused: the steps that are done are compensated, or the
//	(AtLeast) cannot be reached           saga is parked after the pivot; if the step is optional, the saga continues
//	a hop gave up a command (exhausted)   parked, or compensated if the step says so; the answer to a redrive resumes the saga
//	a compensation is refused, given up   parked
//	or not answered in time
//	a failure after the pivot             parked: the saga only goes forward
//	a step in doubt without a             parked
//	compensation
//	a success of a type that the          parked, and the step is exhausted: an operator retries it, skips it with its
//	definition does not have, or an       result, or resolves it
//	answer whose variables or when
//	cannot be evaluated, or whose
//	variables are too large (8 MiB for
//	all variables of a saga)
//	a reason that cannot be evaluated     the event's type, or the condition of the end, is the reason
//	the payload of a deadline that        the start is refused
//	counts from the start cannot be
//	evaluated
//	an awaited event that finds the saga  parked before the step begins; while it waits, as soon as no step can set the variable any
//	by a variable that is unset, null or  more
//	empty
//	a list of ForEach that cannot be      parked before an item begins
//	evaluated, or is too long
//	an item of a step with ForEach that   the same as a refused step; if the step is optional, the saga goes on without the
//	is refused                            item
//	another expression that fails         parked
//	a repeated answer, or one that comes  ignored; but a success of a step in doubt ends the doubt, and its variables are
//	after the step's compensation         stored for the compensation
//	a success of a step that was refused  the database of the hop, or of the saga, was set back: the step is done, and is compensated
//	or skipped                            if the saga goes back; else the saga is parked
//	a success of a step about which an    refused: a dead letter of the coordinator's hop
//	operator has stated that it did not
//	take effect
//	an answer of another hop than the     refused: a dead letter of the coordinator's hop. An exhausted event is ignored: it is about
//	one that the step asks                an event that the other hop has given up
//	a success of a step or an item that   refused: a dead letter of the coordinator's hop. The saga was moved to another definition
//	the definition does not have          before its database was set back
//	a failure of a step that was done,    the hop's database was set back: the step is in doubt, or its compensation has failed, and
//	or of a compensation that was done    the saga is parked; if the saga goes back, the step is compensated
//	an answer to an earlier command,      ignored if it is a failure; a success completes the step
//	after a retry
//	an event before its step awaits it    ignored, as Effects.Early: package coordinator keeps it until then
//	a declared cancel                     the steps that are done are compensated, as if a step were refused. A cancel is refused
//	                                      once a pivot has begun, or the step before which a cancel is accepted has begun or
//	                                      was skipped
//	an operator                           retry, skip, resolve, compensate, resume, cancel, set, abandon; refused where the state does
//	                                      not allow it
//
// A saga ends as completed, compensated or abandoned. A parked saga has not ended.
//
// When a step fails, the saga waits for the steps that are running: only their answers, or their time-outs, show whether there is
// something to compensate. While a pivot is running, or is in doubt and has no compensation, nothing is compensated: if the pivot
// is done after all, the saga goes forward. A saga is not completed while the answer to the compensation of an optional step is
// awaited.
//
// # Not promised
//
// Isolation: other services see the effects of steps before the saga ends. Of two sagas with the same Lock, one waits until the
// other has ended.
package saga
