// Package explore searches what could happen to a saga: every order of messages, duplicates, crashes, deadlines that fire
// at any moment, dead letters that are redriven late or never, and an operator who presses buttons. It finds the shortest
// way to a broken promise, or says that there is none within its bounds.
//
// What is searched is saga.Decide itself, with a small model of the world around it:
//
//	part                    what it does in the model
//	coordinator             decides one event at a time; its commands are in flight from then on, as the outbox has them
//	topics                  per hop one of commands and one of events, in order; across hops any order. Unordered: any order
//	participant             has an inbox and the barrier of package participant, per saga, step and operation; a command
//	                        that gets through succeeds with any of its answers, is refused, or is given up and becomes a
//	                        dead letter
//	dead letter             may be redriven once, at any time, or never
//	crash, resent message   a message is delivered, and again: at once, or behind all others of its topic
//	awaited event           comes once, at any time, before the saga's start too, or never
//	time                    any deadline that is armed may fire now
//	operator                presses any button that is not refused. He is careful: what he skips or resolves he has looked
//	                        up, and he discards the dead letter. Careless: he says anything
//
// Variables have values on both sides of every number or text that a condition compares them with.
//
// # What must hold
//
//	in every state     a step takes effect once and is undone once; nothing is undone that never happened
//	                   a step is undone after all that comes behind it, and nothing takes effect behind what is undone
//	                   after the pivot nothing is undone
//	                   what is refused has had no effect and can have none
//	                   an answer that is awaited can still come, or a deadline is armed
//	by every decision  the version rises by one; an idempotency key is used once; the same arguments decide the same;
//	                   an ended saga stays as it is and has no deadlines; whoever parks raises an alert
//	when nothing       the saga has ended, or is parked and a person can act, or waits for an event of others
//	moves any more
//	completed          what is done took effect and is not undone
//	compensated        what took effect and has a compensation is undone, and nothing takes effect later
//
// # Not searched
//
// Two sagas at once; what messages contain beyond what decisions read; the text of saga.reason, which is empty here; how
// long something takes. A careless operator's steps are exempt from what they broke.
package explore
