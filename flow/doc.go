// Package flow is a service's part in a flow that nobody orchestrates: each service decides for itself what it does about
// the events of others, waits for several of them, and notices what does not come. It stands on package participant, whose
// promises hold here too, and keeps what it waits for in the service's own database.
//
//	payment.events ─────┐
//	                    ├─► Join ──┐
//	inventory.events ───┘  a row   ├─► the service's handler ─► events of its own, commands for others
//	any event ─────────────► On ───┘
//	after this … that within 30 s ─► Expectation ─── not come ─► an event that says so, once
//
// A service is a participant, a declaration (package flow/reactions) and its handlers:
//
//	s, err := New(Config{Participant: p, Declared: declared})
//	On(s, payment, fn)                 for each reaction to an event: fn(ctx, tx, participant.Event[T]) (participant.Outcome, error)
//	participant.Handle(p, fn)          for each reaction to a command of its hop
//	OnJoin(s, "ready", Ends{…})        for each join
//	OnMissed(s, "shipped", fn)         for each expectation
//	err = p.Run(ctx)
//
// A handler returns participant.Succeed or Refuse, which become an event of its hop with the key of what it handled, or Done
// where it has written commands for others with p.Outbox(), or has nothing to say. Compensations are reactions to failure
// events.
//
// # Promised
//
// What is declared is what runs. Run does not begin where a reaction, join or expectation is declared that has no handler, or
// a handler is there that is not declared; its error names each. What a handler emits that its reaction does not declare is
// refused before it is written, and the message becomes a dead letter. A run that ends without anything of what its
// reaction declares to send, Done or not, is an error. Rows that a service inserts by SQL or with another Outbox are not
// seen.
//
// A join is dispatched once. Its messages may come in any order, again, and at once, in one process or many: the first
// makes a row, and those that follow wait for each other at that row. The handler runs in the transaction in which the
// last one is handled, with all of them. Where the handler fails it is that last message which is retried, and in the end
// is a dead letter; redriven it completes the join.
//
//	             all have come ──► complete   the handler runs
//	open ────────within is over ─► expired    the handler of Expired runs
//	             a failure event ► broken     nothing: what is to be undone follows from that event, with On
//
// A join is of one key and ends once: whatever comes after that changes nothing.
//
// An expectation is raised once or met. What is expected may come before what it is expected after: then nothing is
// raised. What comes after it was raised is logged, and changes nothing: what was raised is out. One that is after an event
// of the service's own begins in the transaction that writes the event, with the participant's Outbox or as an outcome,
// whether or not a relay runs; written in another way, when it comes back from the topic.
//
// Each retry has one owner. A message is retried by the hop that handles it, by its participant's policy, and nowhere else:
// no event is sent anew because another one was not answered. So every flow ends: completed, compensated, or parked as a
// dead letter with an exhausted event, which On[participant.Exhausted] and Broken can name, and which can be redriven.
//
// # What becomes of a failure
//
//	failure                                       effect
//	crash at any moment                           the message comes again; neither join nor deadline has changed, or all have
//	the same event again                          the inbox says duplicate
//	the same event under another id               of a join or an expectation: nothing new; of a reaction: the answer again,
//	                                              where it has an idempotency key, else the handler runs again
//	a failure event before the others             the join is broken from the start
//	a failure event after the join is complete    nothing of the join's; On may compensate
//	the last message and the end of time at once  whichever commits first; the other finds the row
//	a part's hop gives up                         its exhausted event breaks the join, where Broken names it; else within
//	                                              ends it; redriven too late the part changes nothing
//	the relay or the participant is away          deadlines wait, and fire when it is back: what has come by then and is
//	                                              not handled yet is late
//	a message without a key                       dead letter: it belongs to nothing; one of the service's own that
//	                                              an expectation is after is not written
//	undeclared emission, no outcome               dead letter, since trying again cannot help
//
// # Growth
//
// A join keeps the bodies of its messages until it ends. Its row, of 200 bytes and the names of what has come, stays for
// Config.Retention, and so does an expectation's: each join that begins deletes up to two whose time is over, and of
// expectations every eighth that begins or is met up to sixteen, so there are never many more than what began within the
// retention, and those that are open. A join without Within may stay open for ever:
//
//	SELECT * FROM troupe.joins WHERE status = 'open' AND began_at < now() - interval '1 hour'
//
// A declaration may change while joins are open: they await what it says when their next message comes. One that lost the
// only message that was still missing ends with its time, or not at all.
//
// # Not promised
//
// Order between topics: a join sees to it that C comes after A and B, a reaction alone does not.
//
// # Least privilege
//
// The role needs the rights that `outbox-relay grants flow` prints; its participant's are among them.
package flow
