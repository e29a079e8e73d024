// Package relay publishes the rows of an outbox to Kafka and then removes them.
//
//	troupe.outbox ──claim──► relay ──send──► Kafka
//	      ▲                    │◄────ack──────┘
//	      └──────delete────────┘   under the term of the lease
//
// # What is promised
//
// A row whose transaction committed is published at least once, under one id; a row whose transaction rolled back never
// is. Two rows of one key and one topic are published in the order of their positions: the first copy of one comes
// before the first copy of the other, through every failure below. A row that cannot be published does not lose its
// place: later rows of its key wait until it is published, or until a person removes it.
//
// Any number of relays may run; one is active. It holds the lease of its shard (there is one shard) for a term that
// nobody had before. Every delete checks the term in its own transaction.
//
// # What is not
//
// Exactly-once delivery: a crash between acknowledgement and delete publishes rows again, and so does an active relay
// that was frozen for longer than its lease. Consumers tell by ce_id. Order between keys; order between topics, since a
// consumer could not tell; order between transactions that write one key without one waiting for the other: among
// those it is the order of positions, as far as they are visible at the same time.
// A message can outlive its row if the database crashes and loses a commit that it had not yet written to disk
// (synchronous_commit=off).
//
// # Failures
//
//	failure                                effect
//	killed before it sent                  nothing was sent; the next relay sends
//	killed between send and ack            sent once more, same ids
//	killed between ack and delete          sent once more, same ids
//	killed after the delete                nothing
//	killed, with a standby                 the standby begins when the lease has run out: 5 s unless set
//	stopped (SIGTERM), with a standby      the standby begins at once
//	frozen, then awake                     may send once more, deletes nothing, stands by
//	a transaction commits late             its rows are found: every claim begins at the lowest row there is
//	the broker is away                     waits; nothing is parked, no attempt is counted, readiness says so
//	the database is away                   waits; what was acknowledged is deleted later if the lease still holds
//	the topic does not exist               the row is tried for 60 s, then parked; its key waits, others go on
//	the topic refuses us (ACL)             the row is tried by Config.Retry, then parked; its key waits, others go on
//	too large, impossible, bad headers     the row is parked at once; its key waits, others go on
//	rows without a key                     wait for nobody
//
// A parked row has a line in troupe.outbox_trouble. Deleting that line lets the row be tried again; deleting the row as
// well gives it up.
//
// # How order survives a refusal
//
// The broker takes or refuses a record batch as a whole, and the client gives up whatever it holds for a partition
// when the broker refuses a batch for good. The relay adds: the client holds all of a send before it writes anything of it,
// and the next begins when this one is settled. So when a record is refused, nothing behind it in its partition was
// taken. A refused batch of several is sent again in halves until the one at fault stands alone. Rows with trouble are
// written down before the next send, and a claim leaves out what stands behind them.
//
// # Exactly once
//
// With Delivery ExactlyOnce (from the log only) whole Postgres transactions go out in Kafka transactions, each with the
// place in the log up to which it goes, as a record in a compacted topic (topics.Relay) of one partition. Consumers that
// read committed messages see every row once. The transactional id is the slot's name.
//
//	begin ─► rows ─► place ─► end ─► confirm to Postgres
//	  killed here: given up   ─┘└─ killed here: published; the place says so
//
// Who leads takes the transactional id first: that ends what a predecessor left open and shuts it out. Then it reads the
// place, behind a record of its own that it commits to that end, and streams from there. A client commits whatever was
// acknowledged, so one record that was not gives the transaction up; so does anything else that is not known to have gone
// well. Then client and stream are made anew, and the place is read again: nothing is taken from memory. The place is
// confirmed to Postgres only behind the end of the transaction.
//
// Trouble is written down before its transaction is given up or ended. Who dies in between leaves a row that is recorded,
// not published, and told again by the log: it is left where it is recorded. Rows in trouble are not tried again before
// the log has passed all that it may have told before, and the place is committed behind them: until then they could be
// tried, published, forgotten, and then told again. They go out in transactions of their own, as do rows that the log
// does not tell (first start, heal); those may come twice after a crash between the end and the note of it, and Status
// says of the latter when that was.
//
//	failure                                a consumer of committed messages sees
//	killed before the end                  each row once: the next relay gives the transaction up and sends again
//	killed behind the end                  each row once: the next relay begins behind the place
//	the end is not confirmed               each row once: it is ended by taking the id again, then the place is read
//	frozen, then awake                     nothing of it: the broker refuses who lost the id
//	dead without an heir                   nothing more until TransactionTimeout is over
//	a row is refused                       all others once; the row and its key wait, recorded
//	too large for TransactionTimeout       nothing of it: at the second time Run ends with an error that says what to do
//	another timeline, or the place lost    repeats of what was not confirmed to Postgres; Status says so
//	the disk set back, same timeline       the same: the row that the place names is not there
//
// # Connections
//
// While active: one connection for claims and deletes, one for notifications, one now and then for the lease and for
// housekeeping. No transaction spans two statements, so that a frozen relay blocks nobody. Connect directly: a pooler
// that hands out another server connection per transaction loses notifications.
package relay
