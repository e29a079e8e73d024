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
// is never retried. An error discards the outcome and everything else that the run wrote.
//
// # Promised
//
// Effect once. A message takes effect in the transaction that inserts its identity into troupe.inbox, and the row is
// unique: whatever is delivered again, to whomever, changes nothing and says nothing. The identity is ce_id; a message
// without one is known by topic id, partition and offset. Only tx may carry effects, since a handler may run again
// after a rollback.
//
// Order per key. Messages of a key take effect in their order in the partition, through retries too: while one waits
// for its next try its key is held, and what comes behind it waits in troupe.held while other keys go on. A message
// without a key holds only itself.
//
// No message is lost or silent. Each ends as an outcome, as a held row, or as a dead letter with an event; an event
// that nobody here handles, and a duplicate, end without a trace. An offset is committed only after that.
//
// # What becomes of a failure
//
//	failure                          class      effect
//	Refuse                           -          failure event; no retry, no alert
//	error                            transient  retried: Config.Immediate times at once, then with back-off
//	panic                            panic      retried; the stack is logged
//	run longer than Config.Timeout   timeout    rolled back, retried
//	retry.Permanent, data that       permanent  dead letter at once
//	Postgres can never store, no
//	outcome, an outcome too large
//	payload or headers unreadable,   poison     dead letter at once; the handler never sees it
//	a command of unknown type
//	attempts used up                 the last   dead letter
//	lost race with a transaction     -          run again at once, five times, before it counts as transient
//	database away                    -          the partition waits and tries the same message; no attempt is counted
//	crash before the commit          -          delivered again
//	crash after the commit           -          delivered again; the inbox row says duplicate
//	commit with unknown result       -          run again; the inbox row decides
//	crash between two attempts       -          the attempts made stand in troupe.held
//	broker away                      -          what was fetched is worked off; offsets are committed when it is back
//	partition taken by another       -          what runs may finish within Config.Drain and the rebalance time-out
//
// A dead letter is one transaction: the inbox row, the row in troupe.dead_letters with the message's bytes, its copy
// for the hop's dlq topic, and an exhausted event with an Exhausted body. Then one line is logged at level error. The
// key goes on with its next message.
//
// # Not promised
//
// Fencing. A member that lost its partition without noticing may still commit what it was running. The effect is once
// all the same; its order against what the partition's new owner has done is not kept.
//
// Attempts of a message that kills the process: only runs that end are counted.
//
// One answer per idempotency key: a command repeated under another ce_id is handled again.
//
// # Concurrency and memory
//
// A partition is worked by one goroutine, which uses one connection of the pool while it runs a handler. Partitions do
// not wait for each other. A partition fetches no more when 512 messages or 1 MiB wait for it, and so holds at most
// that and one fetch (512 KiB, or one larger batch). A compressed batch counts as it came: kgo unpacks up to 1 GiB of it
// unless kgo.MaxDecompressBatchBytes in Config.Kafka says less.
package participant
