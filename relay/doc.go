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
// # Connections
//
// While active: one connection for claims and deletes, one for notifications, one now and then for the lease and for
// housekeeping. No transaction spans two statements, so that a frozen relay blocks nobody. Connect directly: a pooler
// that hands out another server connection per transaction loses notifications.
package relay
