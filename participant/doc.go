// Package participant is one service's part in a flow: it consumes the commands of its hop and the events of other
// hops, runs the service's handlers in the service's own database, and answers.
//
//	            ┌──────────── one transaction ─────────────┐
//	Kafka ─────►│ inbox row · business rows · outbox rows  │──► commit ──► mark ──► commit of offsets
//	            └──────────────────────────────────────────┘
//	                                        outbox rows ──► relay ──► Kafka
//
// A handler gets (ctx, tx, message), does its work in tx and returns an outcome: Succeed and Refuse become a success
// or a failure event on the hop's events topic, in the same transaction. A refusal is a decision of the business: it
// is never retried. An error discards the outcome and everything else that the run wrote. Commands are answered so by
// Handle, events of other hops by React, by which each hop tells the next; On only listens.
//
// # Promised
//
// Effect once. A message takes effect in the transaction that inserts its identity into the inbox, and the identity is
// unique: whatever is delivered again, to whomever, changes nothing and says nothing. The identity is ce_id with ce_source
// (ce_id alone where that is a UUID: envelope.Message.Identity) and the redrive count; a message without ce_id is known by
// topic id, partition and offset. Beside it each partition has a
// watermark, below which nothing is handled again however old it is. Only tx may carry effects, since a handler may run
// again after a rollback.
//
// One answer. A command that comes under another identity with an idempotency key that was answered gets that answer, under
// an id of its own, and its handler does not run. If its key or body is another, it is a permanent dead letter: an
// idempotency key stands for one request. A command that was redriven may have been edited; later ones are not compared
// with it. A command of a saga, with ce_sagaid, ce_sagastep and ce_sagaoperation
// (forward or compensate), is known by these three instead, whatever its keys are: a step's call and its compensation
// never look alike, a refusal stands until it is asked for under another key, and what came too late or too early gets
// the answer Nothing:
//
//	forward call, its compensation was answered          Nothing, as a failure
//	compensation in doubt (HeaderDoubt), and its         Nothing, as a success; the forward call does nothing
//	forward call has not taken effect; one of Ask or     either when it comes
//	Alone: has not begun
//	any other                                            its handler's
//
// Both calls may come at once, in any partition: they meet at a unique key, and the second runs again. Answers are
// remembered for Config.InboxRetention.
//
// Order per key. Messages of a key take effect in their order in the partition, through retries too: while one waits
// for its next try its key is held, and what comes behind it waits in troupe.held while other keys go on. Once it has
// ended, those behind it follow at once, as many as Config.Batch in a transaction. Messages of
// different keys run side by side and overtake each other. OnAll gets the events of a batch in one call, those of a key
// in their order. A message without a key holds only itself. A compensation
// overtakes the held forward command of its own saga and step, which then does not run at all. Nothing else is overtaken: no
// event, and no command without a saga or a step.
//
// No message is lost or silent. Each ends as an outcome, as a held row, or as a dead letter with an event; an event
// that nobody here handles, one that was redriven for another group, and a duplicate, end without effect, which
// Hooks.Passed is told of. An offset is committed
// only when everything below it has ended.
//
// One owner. A partition has a lease with a term; a new owner raises it, and no transaction of an earlier one commits
// after that: a member that was frozen, or cut off, can do no harm when it wakes. Its open transactions are waited for
// for a second, and then ended with their sessions.
//
// # Deadlines
//
// A handler's transaction may Schedule a deadline by name, and Cancel it. Until then it is a row of troupe.deadlines, one
// for each name and scope; Schedule again replaces it. When it is due, any member of the group writes its message to the
// outbox and marks the row, in one statement; the relay brings it to the hop's own commands topic, and from there it is a
// message like any other: in order with its key's, retried, at last a dead letter. Its handler is found by its name. The
// transaction that handles it removes the row.
//
//	Schedule ──► row ──── due ────► row fired + outbox entry ──► relay ──► commands topic ──► handler, row gone
//	              └─ Cancel: gone       └─ Cancel: gone ───────────────────────────────────► late: ignored, logged
//
// None is lost or met twice, none early; the clock is the database's. The deadlines of a group fire in the order in
// which they are due. A member looks every 50 ms, so that one is in the outbox at most that long after it was due and
// what the database takes; after a time without members, what is overdue fires at once. A deadline whose message is a
// dead letter keeps its row: redriven it is met, unless it was cancelled since; discarded, the row says nothing more.
// Deadlines belong to Config.Group, by whose members alone they are fired and met.
//
// # Local work
//
// With Config.Local, messages come from troupe.local_work instead of from Kafka: whoever writes them shares the database.
//
//	INSERT INTO troupe.outbox ──trigger──► troupe.local_work ──claim──► the same transaction ──► done or failed
//
// Handlers, outcomes, classes, attempts, dead letters and events are the same, and so is what is promised above, but for
// partitions and offsets: order is by position in the outbox, per key and not over all; a message that waits for its next
// try, and those behind it, stay where they are; an entry is claimed by the key's first that has not ended, with FOR UPDATE
// SKIP LOCKED, and nobody runs one that somebody else runs, however long it takes. Each entry shows its status (pending, in
// progress, done, failed), attempts, max_attempts, next_try, last_error, locked_at and created_at; what has ended is
// forgotten after an hour. A participant that is killed leaves its entries to the others at once, one that is frozen after
// Config.Stale. Deliveries have partition -1 and the position as their offset. Claims do not read entries that wait for their next
// try, however many there are. A key with more entries behind one that waits costs each claim about 40 µs.
//
// A topic is local for the groups that troupe.make_local(topic, group) was called for, by Run or by whoever may, until
// troupe.end_local(topic). The change waits for writers that are under way. Rows of the topic in the outbox that
// were not published move to the table, and back, in their order; what had reached Kafka has not: let a participant with Brokers
// work it off, of the same Group, which knows what was handled here. A row that the relay published and has not noted as
// published yet (a few seconds under wal) moves too; its second delivery is a duplicate for the Group's inbox, within
// Config.InboxRetention. A writer's INSERT for a local topic reports no inserted row and RETURNING gives
// none, since the row is not in the outbox; everything else about it is the same.
//
// Not there: a compensation does not overtake the forward command of its step, it runs after its last try.
//
// # The handler's transaction
//
// A handler has tx until it returns; each later use, of a savepoint of it too, is an error. A goroutine that still uses it
// then fails the run. SQL must not begin or end transactions; tx.Begin sets savepoints. A handler that changes settings
// (SET, SET LOCAL, RESET, set_config) is noticed by the text of its statements: its messages run alone from then on, and where
// the session keeps a setting, the connection is closed. Settings that a function changes are not noticed: make such a
// handler Alone, and let the function change them for the transaction only. tx.Conn() is the connection itself, for its
// types and configuration: what is sent on it is not watched. LargeObjects make the message run alone, on a
// connection that is closed afterwards.
//
// # What becomes of a failure
//
//	failure                          class      effect
//	Refuse                           -          failure event; no retry, no alert
//	error                            transient  retried: Config.Immediate times at once, then with back-off
//	retry.After                      transient  the same, but not before what it says
//	panic, runtime.Goexit            panic      retried; the stack of a panic is logged
//	run longer than Config.Timeout   timeout    rolled back, retried
//	retry.Permanent, data that       permanent  dead letter at once
//	Postgres can never store, no
//	outcome, an outcome too large,
//	an idempotency key that was
//	answered for another request
//	payload or headers unreadable,   poison     dead letter at once; the handler never sees it
//	a command without a type
//	a command of unknown type, a     transient  its key is held, and it is tried again every 1 to 10 s, by whichever member
//	deadline of unknown name                    has its partition; no attempt is counted. Stats.Unhandled shows it, and a
//	                                            warning names the type
//	the same for longer than         poison     dead letter. The time begins when a member first tries the message, and again
//	Config.UnknownTypeWait                      after a member with a handler has tried it
//	a held event whose handler is    transient  the same: it had one when it came. An event that comes when no
//	gone                                        handler fits is passed over
//	attempts used up                 the last   dead letter
//	any of these in a batch          -          the batch is rolled back, that message runs alone, the others in
//	                                            smaller batches; only runs alone count
//	any of these in OnAll, and no    -          the same, but each message runs alone once
//	At that names the message
//	a deadlock of two batches        -          the same, and batches of the group take turns for a minute
//	lost race with a transaction     -          run again at once, five times, before it counts as transient
//	database away, Unavailable       -          the partition waits and tries the same message; no attempt is counted
//	connection lost in a handler     -          run again at once on another one; the sixth time in a row, outages between
//	or at the commit                            them or not, it counts as a failed attempt
//	a statement's own time-out,      transient  retried, even where the handler returned no error: none of these is an outage
//	SQLSTATE of class 53, 57 or 58,
//	rows left open, an error of a
//	statement kept from its run
//	COMMIT, ROLLBACK, BEGIN in the   permanent  the statement is refused, and the message a dead letter
//	handler's SQL
//	the same on tx.Conn()            permanent  all messages of the transaction become dead letters: nobody knows what took effect
//	crash before the commit          -          delivered again
//	crash after the commit           -          delivered again; inbox and watermark say duplicate
//	commit with unknown result       -          run again; the inbox decides
//	crash between two attempts       -          the attempts made stand in troupe.held
//	the message ends the process     poison     after a crash the partition's first 512 messages, of those that are there,
//	                                            run behind marks that stay, in groups of Config.Batch; those of a group
//	                                            that ends so run one by one. Its group and four runs of its own: then it
//	                                            is a dead letter
//	others are in its group          -          they run alone once; their marks count only their own runs from then on
//	handler ignores its time-out     -          Ready says so, the member leaves the group, Run ends with an error
//	deadline cancelled or scheduled  -          ignored, and said at level info; Hooks.Late counts it
//	again after it fired
//	Schedule by a name or with a     permanent  dead letter of the message that was handled; nothing is scheduled
//	body that nobody expects
//	pending deadlines whose name     -          they wait in the table for a member that has a handler for the name, and
//	has no handler here                         are logged as errors at the start and every ten minutes
//	no member, or the database away  -          deadlines wait; Ready says that they are not fired
//	frozen, its partition taken      -          fenced: nothing commits; it joins again
//	local work: crash, at any step   -          taken over at once, and counted: it runs alone, the fifth time it is
//	                                            poison
//	local work: connection lost      -          taken over, not counted
//	broker away                      -          what was fetched is worked off; offsets are committed when it is back
//	partition taken by another       -          what runs may finish within Config.Drain and the rebalance time-out
//	topic made anew, log cut         -          read as new; identities still tell duplicates
//	database lost its last commits   -          a member compares its watermark and offsets with the database every second,
//	(failover to a standby that                 and leaves the group where the database has less; the next owner reads from
//	lagged, restore)                            the watermark, and what was lost is handled again: Stats.Recovered, and a line
//	                                            at level error
//	group's offset set from outside  -          ahead of the watermark: read from there; before it: what is below the watermark
//	                                            is passed over, with a warning and Stats.Skipped
//
// A command may bring its own number of attempts, waits and time-out, in HeaderRetry. What cannot be read there is ignored,
// and logged at most every 30 s.
//
// A dead letter is one transaction: the inbox row, the row in troupe.dead_letters with the message's bytes, its copy
// for the hop's dlq topic, and an exhausted event with an Exhausted body. Then one line is logged at level error. The
// key goes on with its next message.
//
// # Not promised
//
// Order between messages of different keys, and between a key's messages in different topics or partitions.
//
// That a batch is small in time: it is open as long as its handlers take, one after the other.
//
// # Concurrency and memory
//
// At most Config.Concurrency transactions run at once, each with one connection of the pool, over all partitions, which
// take turns. A partition fetches no more when 512 messages or 1 MiB wait or run, or when 16,384 have ended behind one
// that has not; so it holds at most that and one fetch (512 KiB, or one larger batch, which may unpack to 64 MiB).
//
// # Least privilege
//
// The role of Config.Pool needs the rights that `outbox-relay grants participant` prints, beside what its handlers need; with
// Config.Local those of `outbox-relay grants local`, and the owner of Troupe's tables calls troupe.make_local once per topic.
// Members of one group share a role, so that a new owner may end a frozen one's sessions.
package participant
