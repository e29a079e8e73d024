// Package participant implements one service's part in a flow: it consumes the commands of its hop and the events of other
// hops, runs the service's handlers in the service's own database, and emits their answers.
//
//	            ┌────────────────── one transaction ──────────────────┐                          ┌─► offset commit, every 200 ms
//	Kafka ─────►│ inbox row · offsets row · business and outbox rows  │──► COMMIT ──► low mark ──┤
//	            └─────────────────────────────────────────────────────┘                          └─► watermark, every second
//	                                        outbox rows ──► relay ──► Kafka
//
// The low mark is the offset up to which all messages of the partition have ended; it is in memory. The watermark is the stored low mark,
// in troupe.leases. The offsets row, in troupe.inbox_offsets, has the offsets of the transaction's messages until the watermark is past them.
// The relay publishes each outbox row at least once, and a row again if it ends before it has recorded the publication; the consumer's inbox
// recognises the second one.
//
// A handler gets (ctx, tx, message), does its work in tx and returns an outcome: Succeed and Refuse become a success
// or a failure event on the hop's events topic, in the same transaction. A refusal is a decision of the business: it
// is never retried. An error discards the outcome and everything else that the run wrote. Register a handler of commands with
// Handle. Register a handler of other hops' events with React if it emits an event of this hop, which the next hop can consume,
// and with On if it only consumes.
//
// # Promised
//
// Effect once. A message takes effect in the transaction that inserts its identity into the inbox, and the identity is
// unique: a repeated delivery, to any member, changes nothing and emits nothing. The identity is ce_id with ce_source
// (ce_id alone if it is a UUID: envelope.Message.Identity) and the redrive count; a message without ce_id is identified by
// topic id, partition, offset and a hash of its timestamp, key, payload and headers. In addition each partition has a watermark:
// no message below it is handled again, however old it is. Only tx may carry effects, since a handler may run again after a
// rollback.
//
// One answer. A command that comes under another identity with an idempotency key that was answered gets that answer, under
// an id of its own, and its handler does not run. If its key or body differs, it is a permanent dead letter: an
// idempotency key identifies one request. A command that was redriven may have been edited; later ones are not compared
// with it. A command of a saga, with ce_sagaid, ce_sagastep and ce_sagaoperation (forward or compensate), is identified by
// these three instead, whatever its keys are. So a step's forward call and its compensation are never taken for the same
// request, and a refusal is repeated until the saga calls under another key. A command that came too late or too early is
// answered with the event Nothing:
//
//	command                                              answer
//	forward call whose compensation was answered         Nothing, as a failure
//	compensation in doubt (__troupe.saga.doubt) whose    Nothing, as a success; if the forward call comes later, it does
//	forward call has not taken effect (with Call or      nothing
//	Alone: has not begun)
//	any other                                            the outcome of its handler
//
// Both calls may come at the same time, in any partition: both insert one unique key, and the second runs again. Answers are
// kept for Config.InboxRetention, those to a saga's commands for Config.BarrierRetention.
//
// Order per key. Messages of a key take effect in their order in the partition, also if one of them is retried. While a message
// waits for its next try, its key is held: later messages of the key wait in troupe.held, and other keys go on. Once the first
// has ended, the others follow at once, as many as Config.Batch in a transaction. Messages of
// different keys run concurrently and overtake each other. OnAll gets the events of a batch in one call, with the events of a key
// in their order. A message without a key holds only itself. A compensation overtakes the held forward command of its own saga
// and step, which then does not run at all. Nothing else is overtaken: no event, and no command without a saga or a step.
//
// No message is lost, and none ends without a trace. Each ends as an outcome, as a held row, as a row of the outbox for a retry topic, or as a
// dead letter with an event. Hooks.Passed reports each message that ends without effect, with the reason: most often it is an event that
// has no handler here, or a duplicate. Passed.Reason has all reasons. An offset is committed only when every message below it has
// ended.
//
// One owner. A partition has a lease with a term; a new owner raises it, and no transaction of an earlier owner commits
// after that: a member that was frozen, or cut off, commits nothing when it continues. The new owner waits a second for the open
// transactions of the earlier one, and then ends their sessions.
//
// # Deadlines
//
// A handler's transaction may Schedule a deadline by name, and Cancel it. Until it is due it is a row of troupe.deadlines, one
// for each name and scope; scheduling it again replaces it. When it is due, any member of the group writes its message to the
// outbox and marks the row, in one statement. The relay publishes it to the hop's own commands topic, and from there it is a
// message like any other: in order with the other messages of its key, retried, in the end a dead letter. Its handler is found
// by its name. The transaction that handles it removes the row.
//
//	Schedule ──► row ──── due ────► row fired + outbox entry ──► relay ──► commands topic ──► handler, row gone
//	              └─ Cancel: gone       └─ Cancel: gone ───────────────────────────────────► late: ignored, logged
//
// No deadline is lost or handled twice, and none fires early; the clock is the database's. The deadlines of a group fire in the
// order in which they are due. A member polls every 50 ms, so a deadline is in the outbox at most that long, and the time that
// the database takes, after it was due. When the first member starts after a time without members, all overdue deadlines fire at once,
// with one exception: deadlines that report missing messages (of sagas, joins and expectations) wait until the messages that are in
// the topics at that time are handled.
// A deadline whose message is a dead letter keeps its row: if redriven it is handled, unless it was cancelled since; if
// discarded, the row has no effect any more. Deadlines belong to Config.Group: only its members fire and handle them.
//
// # Local work
//
// With Config.Local, messages come from troupe.local_work instead of from Kafka: their writers share the database.
//
//	INSERT INTO troupe.outbox ──trigger──► troupe.local_work ──claim──► the same transaction ──► done or failed
//
// Handlers, outcomes, classes, attempts, dead letters and events are the same, and so are the promises above, except for
// partitions and offsets. Order is by position in the outbox, per key and not over all. A message that waits for its next
// try, and the messages behind it, stay in the table. Only the first entry of a key that has not ended is claimed, with FOR
// UPDATE SKIP LOCKED, and no member runs an entry that another member runs, however long it takes. Each entry shows its status
// (pending, in progress, done, failed), attempts, crashes, max_attempts, next_try, last_error, locked_at and created_at; an ended entry
// is deleted after an hour. If a participant is killed, the others take over its entries at once; if it is frozen or its host is lost,
// after Config.Stale. Deliveries have partition -1 and the position as their offset. Claims do not read entries that wait for their
// next try, however many there are. But each key that has entries behind one that waits adds about 40 µs to each claim.
//
// A topic is local for the groups for which troupe.make_local(topic, group) was called, by Run or by a role that has the right
// to, until troupe.end_local(topic). The change waits for open transactions of writers. Rows of the topic in the outbox that
// were not published move to troupe.local_work, and troupe.end_local moves unfinished entries back, in their order.
//
// If a topic is not local for the group and the role may not make it so, Run returns an error with the statement for the owner of Troupe's tables.
// So call troupe.make_local for the topics that a new version adds before it starts; members of earlier versions go on. A topic that only a stored
// saga definition of another version reads ends no member: the member logs the statement, and consumes the topic once it is local.
//
// Start the groups that consume a topic of events within an hour of each other. A group for which the topic becomes local
// within an hour after it did for the first group gets all entries that the first one got. A group for which that happens later
// gets the events from then on.
//
// Messages that had reached Kafka do not move. Let a participant with Brokers and the same Group handle them: it recognises the
// messages that were handled here. It also tries held messages, which Stats.Stranded counts while no such participant runs. A row that the relay published and has not recorded as published yet (a few seconds under wal) moves too; its
// second delivery is a duplicate, which the Group's inbox recognises within Config.InboxRetention.
//
// A writer's INSERT for a local topic reports no inserted row, and RETURNING returns none, since the row is not in the outbox.
// Nothing else changes for the writer.
//
// troupe.end_local fails while a member of any group consumes the topic: afterwards the topic's messages go to Kafka, where that
// member does not read. After a failover to a standby that lagged, or a restore, a topic may no longer be local. Running
// members then make it local again and log an error; if their role may not, Ready reports it.
//
// One thing differs from Kafka: a compensation does not overtake the forward command of its step. It runs after that command's
// last try.
//
// # The handler's transaction
//
// A handler may use tx until it returns; each later use, also of a savepoint of tx, is an error. If a goroutine still uses tx when
// the handler returns, the run fails. The handler's SQL must not begin or end transactions; tx.Begin sets savepoints. From the text
// of its statements the participant recognises a handler that changes settings (SET, SET LOCAL, RESET, set_config). The messages of
// such a handler run alone from then on; if the session keeps a setting, the connection is closed. Settings that a function changes
// are not noticed: make such a handler Alone, and let the function change them for the transaction only. tx.Conn() is the connection
// itself, for its types and configuration: statements that are sent on it are not watched. LargeObjects makes the message run alone,
// on a connection that is closed afterwards.
//
// # Failures
//
//	failure                          class      effect
//	Refuse                           -          failure event; no retry, no alert
//	error                            transient  retried: Config.Immediate times at once, then with back-off
//	retry.After                      transient  the same, but not before the time that it names
//	retry.RateLimited                rate_      its key is held for the time that the error names, 1 s to 24 h; no attempt is
//	                                 limited    counted, also with RetryTopics. Config.RateLimitedWait after the message's
//	                                            first failure of any class it is a dead letter
//	panic, runtime.Goexit            panic      retried; the stack of a panic is logged
//	run longer than Config.Timeout   timeout    rolled back, retried
//	retry.Permanent, data that       permanent  dead letter at once
//	Postgres can never store, no
//	outcome, an outcome too large,
//	an idempotency key that was
//	answered for another request
//	payload or headers unreadable,   poison     dead letter at once; the handler never sees it
//	a command without a type, an
//	attribute that the database's
//	encoding lacks characters for
//	a command of unknown type, a     transient  its key is held, and the member that owns its partition at the time tries it
//	deadline of unknown name                    every 1 to 10 s; no attempt is counted. Stats.Unhandled shows it, and a
//	                                            warning names the type
//	the same for longer than         poison     dead letter. The time begins when a member first tries the message, and again
//	Config.UnknownTypeWait                      after a member with a handler has tried it
//	a held event whose handler is    transient  the same: it had a handler when it came. An event that comes while it has
//	gone                                        no handler is skipped
//	a call outside (Call, Alone) of  transient  its key is held and tried every second; no attempt is counted
//	its saga's step is under way in
//	another partition
//	no permit of a RateLimit or a    -          it waits in this process, with the later messages of its key: no row, no
//	ConcurrencyLimit                            transaction, no attempt
//	attempts used up                 the last   dead letter
//	any of these in a batch          -          the batch is rolled back, that message runs alone, the others in
//	                                            smaller batches; only runs alone count
//	any of these in OnAll, and no    -          the same, but each message runs alone once
//	At that names the message
//	a deadlock of two batches        -          the same. For a minute, each member whose batch was rolled back runs its batches in turn
//	                                            with the other such members
//	a handler's statement lost a     -          run again at once, five times, before it counts as transient
//	race with another transaction
//	the same of a statement of       -          run again at once, five times; then the partition waits and tries again, as if the
//	this package                                database were away
//	database away, retry.Unavailable -          the partition waits and tries the same message; no attempt is counted
//	database falls silent and keeps  -          the same, once a statement of this package has waited for 30 s. A handler's statement
//	the connection                              ends with the handler's time-out
//	connection lost in a handler     -          run again at once on another one; the sixth time in a row, with or without
//	or at the commit                            outages between them, it counts as a failed attempt
//	a statement's own time-out,      transient  retried, even if the handler returned no error: none of these is an outage
//	SQLSTATE of class 53, 57 or 58,
//	rows left open, an error of a
//	statement kept from its run
//	COMMIT, ROLLBACK, BEGIN in the   permanent  the statement is refused, and the message a dead letter
//	handler's SQL
//	the same on tx.Conn()            permanent  all messages of the transaction become dead letters: what took effect is unknown
//	crash before the commit          -          rolled back, and delivered again to the next owner, which gets the partition after
//	                                            10 s (the session time-out)
//	crash during a call outside      -          the call is made again, with the same idempotency key; a compensation in doubt of
//	(Call, Alone), or before its                the call's step runs, since the call may have taken effect
//	commit
//	crash after the commit           -          delivered again; inbox, offsets rows and watermark recognise a duplicate. Functions
//	                                            of AfterCommit that have not run never run
//	crash after the offset commit,   -          the next owner reads from the watermark; inbox and offsets rows recognise duplicates.
//	before the watermark is stored              In the first second of the group's first owner of a partition there is no watermark
//	                                            yet: the next owner reads from the committed offset, with a warning, and nothing is lost
//	crash after the lease is         -          the next owner reads from the committed offset, and passes over messages that the
//	released, before the offset                 watermark covers
//	commit
//	commit with unknown result       -          run again; the inbox decides
//	crash between a failed run and   -          delivered again; the run is not counted as an attempt
//	the record of its failure
//	crash after that record          -          the attempt is counted; the log line, Hooks.Failed and Hooks.Held may be missing
//	crash between two attempts       -          the number of attempts is stored: in troupe.held, or in the headers on a retry topic.
//	                                            With RetryTopics, tries at once that failed are counted in memory only
//	crash after the last commit,     -          as after any crash, the next owner runs the first messages in quarantine
//	before the lease is released
//	the message ends the process     poison     quarantine: after a crash the partition's first 512 messages (twice Batch
//	                                            or Concurrency, if that is more), of those already in the log, are
//	                                            recorded in troupe.started before they run, in groups of Config.Batch; the
//	                                            messages of a group that crashed run one by one. The first crash is not
//	                                            counted: a message that ends the process in its group and four times alone is
//	                                            then a dead letter, after six crashes. A clean release ends the quarantine
//	others are in its group          -          they run alone once; from then on only their own runs count for them
//	handler ignores its time-out     -          Ready reports it, and the member leaves the group. If the handler still runs after
//	                                            Config.Drain, Run ends with an error; else the member joins again
//	deadline cancelled or scheduled  -          ignored, and logged at level info; Hooks.Late counts it
//	again after it fired, or a
//	message that looks like one
//	Schedule by a name or with a     permanent  dead letter of the message that was handled; nothing is scheduled
//	body that has no handler
//	pending deadlines whose name     -          they wait in the table for a member that has a handler for the name, and
//	has no handler here                         are logged as errors at the start and every ten minutes
//	deadlines of a former group      -          they wait. Each service of the database logs them as errors, at the start and
//	                                            every ten minutes, once they are overdue by an hour
//	no member, or the database away  -          deadlines wait; if there is a member, its Ready reports that they are not fired
//	frozen, its partition taken      -          fenced: nothing commits; it joins again
//	local work: crash, at any step   -          taken over at once, and counted: it runs alone, the fifth time it is
//	                                            poison
//	local work: a member lost the    -          entries that do not run are claimed again: by this member without a count, by
//	connection that shows it runs               another one as after a crash. Entries that run are not taken over. A member notices
//	                                            within a second once its statements reach a server,
//	                                            also if the connection shows no end
//	broker away                      -          fetched messages are handled; offsets are committed when it is back
//	partition taken by another       -          running handlers may finish within Config.Drain and the rebalance time-out
//	topic created again, log cut     -          read as new; duplicates are still recognised by their identities
//	log that ends before the         -          messages from the group's offset on are handled, also if the epoch of their leader is
//	watermark, as of a broker that              not later than the watermark's. A line at level error has the partition, the watermark
//	was restored from a copy                    and the end of the log. It is noticed if the log ends there when its next owner reads it
//	messages deleted from the topic  -          lost to the group; a line at level error has the partition, the first offset and the
//	before they were read                       number of offsets
//	a deadline among messages that   -          it fires again, if a member finds that messages were deleted or skipped, or that the
//	are lost or skipped                         topic was created again; else a day after it fired
//	transaction of another producer  -          the messages behind its first one cannot be read, and are not in the lag. Ready reports
//	that does not end                           one that is open for 15 minutes
//	database lost its last commits   -          a member compares its watermark and offsets with the database, every second
//	(failover to a standby that                 while messages end and every 10 s else, and leaves the group if the database
//	lagged, restore)                            has less; the next owner reads from the watermark, and lost work is done
//	                                            again: Stats.Recovered, and a line at level error
//	group's offset set from outside  -          ahead of the watermark: read from there; before it: messages below the watermark
//	                                            are skipped, with a warning and Stats.Skipped
//
// A command of a saga's step with retry settings brings its own number of attempts, waits and time-out, in the header
// __troupe.retry. A value that cannot be read there is ignored, and logged at most every 30 s.
//
// A dead letter is one transaction: the inbox row, the row in troupe.dead_letters with the message's bytes, its copy
// for the hop's dlq topic, and an exhausted event with an Exhausted body. Then one line is logged at level error. The line is lost
// if the process ends after the commit, or if the commit gets no answer: so alert on the rows of troupe.dead_letters. The
// key goes on with its next message.
//
// # Not promised
//
// Order between messages of different keys, and between a key's messages in different topics or partitions.
//
// Order of a key across a failover to a standby that lagged: effects that the new primary lacks are done again, and a later
// message of the key, which the member had at hand, may have its effect first. Stats.Recovered counts them.
//
// Short transactions for batches: a batch is open as long as its handlers take, one after the other.
//
// # Concurrency and memory
//
// At most Config.Concurrency transactions run at once, each with one connection of the pool, over all partitions, which take
// turns. A partition fetches no more when 512 messages (twice Batch or Concurrency, if that is more) or 1 MiB wait or run, or
// when 16,384 have ended behind one that has not; so it holds at most that and one fetch (512 KiB, or one larger batch, which
// may unpack to 64 MiB).
//
// # Least privilege
//
// The role of Config.Pool needs the rights that `outbox-relay grants participant` prints, in addition to the rights that its
// handlers need; with Config.Local it needs the rights of `outbox-relay grants local`, and the owner of Troupe's tables calls
// troupe.make_local once per topic. A member whose role owns Troupe's tables also adds partitions to the outbox, as a relay does;
// other members log an error when fewer than 5 million positions are left. Members of one group share a role, so that a new owner
// may end a frozen one's sessions.
package participant
