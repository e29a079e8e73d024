// Package repair is what a person may do about messages that failed: find them, see why, and put them right.
//
//	troupe.held          waits for its next try   Retry (now), Release (give up: it becomes a dead letter)
//	troupe.dead_letters  nobody tries it again    Edit, Redrive, Discard
//	troupe.inbox         was handled              Find
//
// Dead letters are grouped by cause: consumer group, class, handler, and the error without what belongs to one message
// alone (quoted values, UUIDs, hex, numbers). A thousand dead letters of one outage are one line, and one Redrive.
//
// # Promised
//
// Every action is one transaction with its row in troupe.repairs: who, when, why, on which message, and what an edit
// changed. An action that is not recorded did not happen. Rows there are only ever added.
//
// A redrive sends the message once: the row in troupe.outbox and the dead letter's status are one transaction. It goes
// to the topic that it came from with its own key, payload (or what an edit made of it), id and headers, but for those
// of its dead letter, which are taken off, and two that are set: how often it was redriven, and for which group. A
// participant takes message and number together for its identity, so the message is no duplicate of its former self
// and has its effect once. Should it fail again, that is a new dead letter.
//
// Redriven messages are in order among themselves: each Redrive takes them in the order in which they failed, and of
// two that run at once each takes the next that there is. They come after what their key has done since.
//
// An edit changes what a redrive will send, and nothing else: the message as it came stays in the dead letter.
//
// # What becomes of a failure
//
//	failure                                     effect
//	killed while it redrives or discards        what was done is done; the same call goes on with the rest
//	commit with unknown result                  the next call finds out by the dead letter's status
//	two redrive, discard or edit the same one   one does; the other finds it done, and says by whom
//	a message fails again while others are      not taken again: a Redrive takes only dead letters from before
//	still redriven                              it began
//	a message that no relay could send          refused, with the remedy; the others go on
//	a handler runs the message that is to be    Release and Retry wait for its end, up to 10 s; then they say so
//	released                                    and nothing has happened
//	it succeeded meanwhile                      ErrGone: there is nothing left to do
//
// # Not promised
//
// That the actor is who he says: Actor is a name that the caller vouches for. The role column is the database's own.
//
// Headers in their order: a relay writes attributes first, and adds those that were missing (source, subject, time).
//
// The rights that a role needs are in docs/dead-letters.md.
package repair
