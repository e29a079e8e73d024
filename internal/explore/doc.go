// Package explore searches the possible executions of a saga: every order of messages, duplicates, crashes, deadlines that fire
// at any time, dead letters that are redriven late or never, and operator actions. It finds a shortest execution that breaks an
// invariant, or reports that there is none within its bounds.
//
// It calls saga.Decide itself, in a small model of its environment:
//
//	part                    its behaviour in the model
//	coordinator             decides one event at a time; its commands are in flight from then on, as the outbox has them
//	topics                  per hop one of commands and one of events, in order; across hops any order. Unordered: any order
//	participant             has an inbox and the barrier of package participant, per saga, step and operation; a command
//	                        that is run succeeds with any of its answers, is refused, or is given up and becomes a
//	                        dead letter
//	dead letter             may be redriven once, at any time, or never
//	crash, resent message   a message is delivered again: at once, or after all others of its topic
//	awaited event           comes once, at any time, also before the saga's start, or never
//	time                    any deadline that is armed may fire now
//	operator                takes any action that is not refused. A careful operator (the default) skips or resolves a step
//	                        only in agreement with the service, and discards the dead letter. A careless one (Careless)
//	                        does so without a check
//
// Variables have values on both sides of every number or text that a condition compares them with.
//
// # Invariants
//
//	in every state     a step takes effect once and is undone once; a step that never took effect is not undone
//	                   a step is undone after all steps that depend on it, and none takes effect after one it needs is undone
//	                   after the pivot nothing is undone
//	                   a refused step has had no effect and can have none
//	                   an awaited answer can still come, or a deadline is armed
//	by every decision  the version rises by one; an idempotency key is used once; the same arguments decide the same;
//	                   an ended saga stays as it is and has no deadlines; a decision that parks the saga raises an alert
//	when nothing       the saga has ended, or is parked and an operator can act, or waits for an event of others
//	moves any more
//	completed          each step that is done took effect and is not undone
//	compensated        each step that took effect and has a compensation is undone, and no step takes effect later
//
// # Not searched
//
// Two sagas at once; the parts of messages that no decision reads; the text of saga.reason, which is empty here; durations.
// Steps on which a careless operator acted are exempt from the invariants.
package explore
