// Package saga is what decides where somebody must: which command follows which answer, and the way back when a later step
// fails. It is the definition and the decision, and nothing else: no clock, no database, no Kafka. Package coordinator runs
// it, verify proves a definition before it runs, explore searches what could happen, sagatest tests it in virtual time;
// all of them by this one function:
//
//	Decide(definition, state, event, now) ─► (state, effects)
//
// # A saga
//
// A Spec is written in Go or as JSON, and Define or Parse makes a Definition of it. It has variables (data), and steps that
// form a graph (needs). A step sends a command to a hop, or calls its service by HTTP, or waits for an event; its answer
// gives variables their values, and a compensation undoes it. Expressions are CEL (cel.dev): data.amount_cents < 10000.
//
// A step begins when what it needs is done, if its condition (when) holds; else it is skipped. When every step is done or
// skipped, the saga is completed.
//
// # The way back
//
//	what happens                          what follows
//	a step is refused (failure)           back: what was done is compensated, each step after all that came behind it
//	a step is not answered in time        in doubt: it is compensated too
//	a hop gave a command up (exhausted)   parked, or back if the step says so; the answer to a redrive takes it up again
//	a compensation is refused, given up   parked
//	or not answered in time
//	a failure after the pivot             parked: it only goes forward
//	something in doubt that has no        parked
//	compensation
//	an answer of a type that the          parked, with the step exhausted: a person retries it, gives its result, or
//	definition does not know, or whose    resolves it
//	variables or when cannot be
//	evaluated
//	another expression that fails         parked
//	an answer again, a late one           ignored; what it gives a compensation is kept
//	a command sent again, and an answer   ignored, unless it took effect: then it is done
//	to the earlier one
//	an event before its step awaits it    kept until then; refused where 64 are kept already
//	a person                              retry, skip, resolve, compensate, resume, set, abandon; refused where it makes no sense
//
// A saga ends as completed, compensated or abandoned. What is parked has not ended.
//
// Steps that run while another fails are waited for: only their answer, or its absence, says whether there is anything to
// undo. While a pivot is under way, or in doubt and nothing undoes it, nothing is undone: if it is done after all, the saga
// goes forward.
//
// # Not promised
//
// Isolation: others see what steps have done before the saga ends. Lock lets one of two sagas wait.
package saga
