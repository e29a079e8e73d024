// Package repair inspects and repairs failed messages, on behalf of an operator.
//
//	troupe.held          waits for its next attempt  Retry (now), Release (give up: it becomes a dead letter)
//	troupe.local_work    the same, for local work    Retry, Release
//	troupe.dead_letters  is not retried any more     Edit, Redrive, Discard
//	troupe.inbox         was handled                 Find
//
//	troupe.unreadable_batches  blocks its partition, since it is too large when decompressed  Skip
//
// Dead letters are grouped by cause: consumer group, class, handler, and the error without the parts that belong to one message
// alone (quoted values, UUIDs, hex, numbers). A thousand dead letters of one outage are one line, and one Redrive.
//
// # Promised
//
// Every action is one transaction together with its row in troupe.repairs, which has the operator, the time, the reason, the
// message, and the changes of an edit. An action without such a row has not happened. Rows are only added to that table.
//
// A redrive sends the message once: the row in troupe.outbox and the dead letter's status are written in one transaction. The
// message goes to its original topic with its own key, payload (or the edited one), id and headers. The headers of the dead
// letter are removed, and two are set: the number of redrives, and the consumer group. A participant uses id and number together
// as the message's identity, so the message is no duplicate of its earlier delivery and takes effect once. If it fails again, it
// becomes a new dead letter.
//
// A message that was edited is another request to the services that its handler calls: the handler gets it with another idempotency
// key, which stays the same until the next edit, unless the operator has it keep its key. An unchanged one keeps its key.
//
// Redriven messages keep their order among each other: each Redrive takes them in the order in which they failed, and of two that
// run at once each takes the next one that is open. They come after the messages that their key has handled since.
//
// An edit changes only the payload that a redrive will send: the dead letter keeps the original message.
//
// # Failures
//
//	failure                                     effect
//	killed during a redrive or discard          completed transactions stay; the same call continues with the rest
//	commit with unknown result                  the next call sees it in the dead letter's status
//	two redrive or discard the same one         one succeeds; the other one skips it, or if it was selected by its id gets
//	                                            ErrNotOpen, with the name of the first actor
//	two edit the same one                       the later edit counts; after a redrive or discard Edit returns ErrNotOpen
//	a message fails again while others are      not taken again: a Redrive takes only dead letters from before
//	still redriven                              it began
//	a message that no relay could send          refused, with the remedy; the others are redriven
//	a handler runs the message that is to be    Release waits for its end, up to 10 s; then it returns admin.ErrBusy,
//	released or retried                         and nothing has happened; Retry skips the message
//	it has succeeded meanwhile                  ErrGone: there is nothing left to do
//
// # Not promised
//
// The identity of the actor: Actor is a name that the caller supplies. The column role has the name of the database role.
//
// The order of headers: a relay writes attributes first, and adds the missing ones (source, subject, time).
//
// docs/dead-letters.md lists the rights that a role needs.
package repair
