// Package flow is for services in a flow without an orchestrator. Each service decides for itself how it reacts to the events of
// others, waits for several of them, and detects that an expected message does not arrive. It is built on package participant,
// whose promises hold here too, and stores joins and expectations in the service's own database.
//
//	payment.events ─────┐
//	                    ├─► Join ──┐
//	inventory.events ───┘  a row   ├─► the service's handler ─► its own events, commands for other hops
//	any event ─────────────► On ───┘
//	after this … that within 30 s ─► Expectation ─── not arrived ─► an event that reports it, once
//
// A service consists of a participant, a declaration (Parse reads it from reactions.json) and its handlers:
//
//	s, err := New(Config{Participant: p, Declared: declared})
//	On(s, payment, fn)                 for each reaction to an event: fn(ctx, tx, participant.Event[T]) (participant.Outcome, error)
//	participant.Handle(p, fn)          for each reaction to a command of its hop
//	OnJoin(s, "ready", Ends{…})        for each join
//	OnMissed(s, "shipped", fn)         for each expectation
//	OnLate(s, "shipped", fn)           for each expectation that declares messages for a late arrival
//	err = p.Run(ctx)
//
// A handler returns participant.Succeed or Refuse, which become an event of its hop with the key of the handled message. It
// returns Done if it has written commands for others with p.Outbox(), or if nothing is declared. Compensations are reactions to
// failure events.
//
// # Promised
//
// The declaration matches the handlers. Run returns an error at once if a declared reaction, join or expectation has no handler,
// or if a handler is not declared; the error names each. A message that a handler emits and its reaction does not declare is
// refused before it is written, and the handled message becomes a dead letter. A run that writes none of the messages that its
// reaction declares is an error too. Rows that a service inserts by SQL or with another Outbox are not checked.
//
// A join is dispatched once. Its messages may arrive in any order, repeatedly and at the same time, in one process or in several:
// the first one creates a row, and the others take turns at the lock of that row. The handler runs in the transaction in which
// the last message is handled, and gets all of them. If the handler fails, the last message is retried and may become a dead
// letter; a redrive of it completes the join.
//
//	             all have arrived ─► complete   the handler runs
//	open ────────within has passed ► expired    the handler of Expired runs
//	             a failure event ──► broken     no handler of the join: compensate in a reaction to that event, with On
//
// A join belongs to one key and ends once: messages that arrive later change nothing.
//
// An expectation is either met or raised, once. If the expected message arrives before the message after which it is expected,
// nothing is raised. If it arrives after the expectation was raised, this is logged, and the handler of OnLate is called,
// once: the raised event is already written. An expectation after an event of the service's own begins in the transaction that
// writes the event with the participant's Outbox or as an outcome, so that it needs no relay. If the event is written in another
// way, or the database has lost the expectation, it begins when the event is consumed from the topic.
//
// When the time of an expectation is over, it is missing. Within a second or two a member finds this in the database, records
// it and logs it, also while the broker is away. With Config.AlertURL the members post an alert, and another one if the event
// comes late. If no member runs at that time, the first one that starts does so. The expectation is raised later, when the
// message of its deadline has come through the broker. If the expected event is handled before that message, nothing is raised.
//
// Each retry has one owner. The hop that handles a message retries it, by the policy of its participant, and no other component
// does: no event is sent again because another one was not answered. So every flow ends: completed, compensated, or parked as a
// dead letter with an exhausted event. On[participant.Exhausted] and Broken can name that event, and the dead letter can be
// redriven.
//
// # Failures
//
//	failure                                       effect
//	crash at any moment                           the message is delivered again; join and deadline have both changed, or neither
//	the same event again                          the inbox recognises the duplicate
//	the same event under another id               for a join or an expectation: no effect; for a reaction: the same answer again if
//	                                              the event has an idempotency key, else the handler runs again
//	a failure event before the others             the join is broken from the start
//	a failure event after the join is complete    no effect on the join; a reaction (On) may compensate
//	the last message and the time-out together    the first to commit wins; the other one finds the row
//	the hop of an awaited message gives up        its exhausted event breaks the join if Broken names it; else Within
//	                                              ends the join; a redrive after that changes nothing
//	the relay is away                             deadlines wait, and are due when it is back: messages that have arrived by
//	                                              then and are not handled yet are late. Missing events are recorded in time
//	the participant or its database is away, or   deadlines wait. When both are back, the messages that have arrived by then are
//	the database was set back                     handled first. Any running member records missing events
//	a message without a key                       dead letter, since it belongs to no join; an own event without a key that
//	                                              an expectation is after is not written
//	undeclared message, no outcome                dead letter, since a retry cannot help
//
// # Alerts
//
// The body of a request is JSON, with at most 100 alerts of a service:
//
//	text      for chat programs: at most 20 keys of each expectation, and the number of the others
//	service   the service's hop
//	alerts    every alert, with id, status (missing, or late if the event came after its time), expectation, key, expects (topic
//	          and type of each expected message), after_at, due_at, missed_at, and came_at if it is late
//
// Both alerts of one key have one id, so that a receiver can close an incident. The id is computed from the message with which the
// expectation begins, so it stays the same if the database was set back.
//
//	several members                        one of them posts each alert: it leases the rows for a minute
//	the receiver is away, or answers       the alert is posted again after 1 s to 30 s, or after a Retry-After of up to 5 min,
//	another status than 2xx                until the receiver accepts it or the row's retention is over
//	a crash while a request runs           the alert is posted again when the lease ends: the receiver may get it twice, with
//	                                       one id
//	the event comes before the alert       only the alert with the status late is posted
//	with the status missing is posted
//	the event comes before the miss is     no alert is posted, unless the expectation was raised
//	recorded
//
// The event may have been sent in time and wait in a broker that is away, or behind other messages of its topic. The service
// cannot know this, so it posts the alert in any case. If its Ready reports that it handles no messages, the text says so.
//
// # Growth
//
// A join stores the bodies of its messages until it ends. Its row, of 200 bytes and the names of the arrived messages, is kept
// for Config.Retention after its end, and so is the row of an expectation. Each join that begins deletes up to two rows whose
// retention has passed, and every eighth expectation that begins or is met deletes up to sixteen. So the tables hold little more
// than the joins and expectations of the retention period and the open ones. A join without Within may stay open for ever:
//
//	SELECT * FROM troupe.joins WHERE status = 'open' AND began_at < now() - interval '1 hour'
//
// A declaration may change while joins are open: when their next message arrives, they await what the new declaration lists. If
// it no longer lists the only message that was still missing, the join ends with Within, or never.
//
// # Not promised
//
// Order between topics: a join ensures that C is handled after A and B, a reaction alone does not.
//
// # Least privilege
//
// The role needs the rights that `outbox-relay grants flow` prints; they include the rights of its participant.
package flow
