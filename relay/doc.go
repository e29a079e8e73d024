// Package relay publishes the rows of an outbox to Kafka. It reads them from the table or from the server's log.
//
//	poll   troupe.outbox ──claim──► relay ──send──► Kafka
//	             ▲                    │◄────ack──────┘
//	             └──────delete────────┘   under the term of the lease
//
//	wal    troupe.outbox ─► log ─► slot ──stream──► relay ──send──► Kafka
//	                                ▲                 │◄────ack──────┘
//	                                └──── confirm ◄── store the place, under the term of the lease
//
// Under poll a row that is published is deleted. Under wal it stays until its partition is dropped: a place in the log says
// what is published, and troupe.relay_state keeps it, with a snapshot for the day on which the slot is not there to say it.
// The place is stored before it is confirmed to the server, so a slot that is ahead of what is stored is not the one that
// this outbox's relay left.
//
// # What is promised
//
// A row whose transaction committed is published at least once, under one id; a row whose transaction rolled back never
// is. Two rows of one key and one topic are published in the order of their positions: the first copy of one comes
// before the first copy of the other, through every failure below. A row that cannot be published does not lose its
// place: later rows of its key wait until it is published, or until a person removes it.
//
// Any number of relays may run; one is active, or under poll one for each shard. It holds the lease of its shard for a term
// that nobody had before. Every delete, and every place that is stored, checks the term in its own transaction.
//
// The source may be changed at any time, in both directions, by starting the relay with another one. A slot that is lost is
// made anew, and what it would have told is read from the table. Nothing is lost by either; a change repeats, by id, at most
// what was published since the last stored snapshot: some seconds.
//
// A relay that streams and is asked to stop brings the transactions to an end that it has begun to publish, within
// Config.Drain. The next one repeats nothing.
//
// # What is not
//
// Exactly-once delivery: a crash between acknowledgement and delete, or stored place, publishes rows again, and so does an
// active relay that was frozen for longer than its lease or its slot's time-out. Consumers tell by ce_id.
//
// Order between keys; order between topics, since a consumer could not tell; order between transactions that write one key
// without one waiting for the other: among those it is the order of positions, as far as they are visible at the same time,
// or under wal that of their commits.
//
// Under poll a message can outlive its row if the database crashes and loses a commit that it had not yet written to disk
// (synchronous_commit=off). Under wal it cannot: the server streams only what is on its disk.
//
// A row of any size: one of many megabytes is read whole before it is refused.
//
// # Failures
//
// Of both sources:
//
//	failure                                effect
//	killed before it sent                  nothing was sent; the next relay sends
//	killed between send and ack            sent once more, same ids
//	stopped (SIGTERM), with a standby      the standby begins at once
//	frozen, then awake                     may send once more, deletes and confirms nothing, stands by
//	the broker is away                     waits; nothing is parked, no attempt is counted, readiness says so
//	the topic does not exist               the row is tried for 60 s, then parked; its key waits, others go on
//	the topic refuses us (ACL)             the row is tried by Config.Retry, then parked; its key waits, others go on
//	for the relay's own topic of places    the row is parked at once; its key waits, others go on
//	too large, impossible, bad headers     the row is parked at once; its key waits, others go on
//	rows without a key                     wait for nobody
//	the data is another cluster's          a copy or a restored dump: all rows in the table go out, perhaps again
//	the database's clock is set back       a lease from the clock that was ahead lasts two minutes more at most
//
// Of poll:
//
//	killed between ack and delete          sent once more, same ids
//	killed after the delete                nothing
//	killed, with a standby                 the standby begins when the lease has run out: 5 s unless set
//	a transaction commits late             its rows are found: every claim begins at the lowest row there is
//	the database is away                   waits; what was acknowledged is deleted later if the lease still holds
//
// Of wal:
//
//	killed between ack and stored place    what was published in the last second or so is sent once more, same ids
//	killed, with a standby                 the standby begins when it sees the slot idle: Config.Lease at most
//	frozen, with a standby                 the server ends the stream after 5 s, then as above
//	a transaction commits late             it is streamed when it commits
//	a row is discarded, then a crash       the log has the row once more; it is passed over
//	a transaction of any size              passes in bounded memory; killed within it, it begins anew
//	a connection is cut                    the stream begins anew at the stored place
//	synchronous_standby_names matches it   commits wait for the relay, which logs a warning; it does not wait for itself
//	a commit waits for a standby           its rows may be published before others see them; their failures are kept
//	the server decodes a huge transaction  it is waited for: after 15 s of silence another connection asks what the server does
//	failover, the old primary is open yet  the stream of the old one ends; the new one's stored place and rows go on
//	the server restarts                    the relay lets its stream go, so that the server can stop, and comes back
//	the server crashes                     streams what was on disk; nothing is known of what was not, and nothing told
//	the slot is dropped, or lost           made anew; rows that the stored snapshot does not see are read from the table
//	the slot is made anew by others        recognised, since it is ahead of what is stored; as above
//	the publication is altered             not ready while it does not publish every row, or poll under Auto; then the slot is
//	                                       made again, and rows that the log does not have are read from the table, in order
//	the log holds what cannot be streamed  at the fifth time at one place the slot is made anew, as above: after the publication
//	                                       was dropped, or a column had another name, for a while
//	the slot is another database's         refused, and left alone: give the relay a slot of another name
//	no slot can be had, or not yet         the table is polled meanwhile; making one waits for all open transactions
//	the slot holds much of the log         warned of, then not ready, then dropped at Config.SlotLimit (off unless set)
//	a column is added to the table         harmless
//
// A slot that was dropped at the limit is not made again by the process that dropped it: it polls, and Status.GivenUp and an
// error in the log say so. Whoever starts the relay again, or a standby that takes over, streams again.
//
// # Rows in trouble
//
// A row that is parked, waits for its next try, or under wal waits behind such a row of its key, has a line in
// troupe.outbox_trouble. Under wal that line is all that is left of it to do, since a stream tells a row once:
//
//	what is deleted           poll                                      wal
//	the line and the row      the row is given up                       the row is given up
//	the line alone            the row is tried again                    the row is given up, and stays in the table
//	the row alone             as both, after a while                    as both, after a while
//
// A line without a row is deleted within two minutes of the end of every transaction that was open when the line was written:
// a stream sees a row before others do while its commit waits for a synchronous standby.
//
// The same holds for a poll of rows that a stream has told before. So a row is tried again, under either source, by setting
// its line to retrying with a next_try, which is what outbox-relay parked retry does.
//
// # Pauses
//
// Pause is of one Relay and of its process. A pause in the row of the outbox's lease (package desk, outbox-relay pause) is
// heeded by every relay that takes a lease of it, before it reads anything: it is read when a lease is taken, told by
// each renewal, and under wal by a message in the log, so an idle relay needs no statement for it. While it lasts it is
// read each second. Leases are kept, rows wait, and nothing is held up that is in flight; under wal the log grows.
//
// # How order survives a refusal
//
// The broker takes or refuses a record batch as a whole, and the client gives up whatever it holds for a partition
// when the broker refuses a batch for good. The relay adds: the client holds all of a send before it writes anything of it,
// and the next begins when this one is settled. So when a record is refused, nothing behind it in its partition was
// taken. A refused batch of several is sent again in halves until the one at fault stands alone. Rows with trouble are
// written down before the next send, and a claim leaves out what stands behind them.
//
// # Shards
//
// Under poll the outbox may be divided into shards, by the hash of the key: a key is one shard's, and its order with it. A row
// without a key belongs to one by its id. Each shard has a lease of its own. Who holds that of shard 0 leads: it decides on
// the source and on the number of shards, by its own configuration, and keeps house. The others are taken by whoever is there.
//
//	the number changes    the leader writes it down as a new layout, under which nothing of the former can be renewed, and waits
//	                      until the last of its leases is released or has run out; only then anything of the new is claimed
//	the source is wal     a layout of one shard, before anything is streamed
//	a relay comes         it asks those that hold two shards more than it does for one of them, until none does
//	a relay is killed     its leases run out, and the others take them
//	a relay was frozen    as above; awake, it may send once more, and deletes nothing
//
// Every renewal and every new lease locks the row of shard 0, as a change of the layout does, so each is either before
// the change, and seen by the leader, or behind it, and refused. The number in force is troupe.relay_leases.shards in that row;
// to change it, start the relays with another one: it holds as soon as one of them leads. A relay that is set to wal, or to
// exactly once, takes no shards.
//
// # How a backlog is polled
//
// A claim begins at the lowest row there is, since a row may commit late. One that finds more than it may take is the first
// of a pass: the next go on behind it, while the one before is sent, over what the first one's snapshot sees. So the
// rest of the backlog is not walked again with each claim, no transaction is open meanwhile, and a row that commits late is
// overtaken by nothing that was written after it. A pass ends after a second, and with any row that is not published. Rows that
// wait behind a parked one are left out of it, and it ends when a row that others wait behind is published or removed.
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
// # A table that is not troupe.outbox
//
// With Table and Mapping the outbox is a table of any shape, read from the log alone: nothing in it says which rows are
// published, and its rows are not the relay's to delete, so it is not polled. Its relay has a lease, a slot, a publication and
// a place of its own (troupe.mapped_tables), and the promises above hold for it. A row in trouble is kept whole in
// troupe.mapped_trouble, since its table need not keep it, and mapped anew when it is tried again.
//
//	failure                                effect
//	a slot of others, at the first start   gone on with from where it stands; refused while they stream it
//	no slot yet, or lost                   made anew; what the table then holds goes out, in the order of the mapping's
//	                                       position or timestamp: with an xid column what was not published, else all
//	deleted while there was no slot        lost: nothing has it
//	a row that cannot be mapped            parked, as is one whose partition does not exist; its key waits
//	the log holds what cannot be streamed  not ready, and says why: rows may be in the log alone, so a person drops the slot
//	the publication is altered             not ready, and says why: a person drops the slot, or states that no row is missing
//	another table has its name             not ready: put the new table into the publication
//	columns that the mapping needs gone    the stream stands, and says which, until table or mapping is put right
//	two rows of one event id in trouble    are one message
//
// # Avro
//
// With Config.Avro a payload that is JSON is encoded before it is sent. One that does not fit its schema is parked; a subject
// without a schema is tried as long as a topic that does not exist; a registry that is away is waited for, and with it all
// rows, unless the schema was seen before.
//
// # Connections
//
// While active under poll: one connection for the claims and deletes of each shard, one for notifications, one now and then for
// the lease and for housekeeping; with several shards one more for looks, and one for the leases' notifications. Idle, one
// statement an interval, which renews the leases of all shards and looks for their rows. Under wal: one for replication, one for places and samples, and one now and then for the lease
// and housekeeping; idle, some 10 statements a minute. No transaction spans two statements, so that a frozen relay blocks nobody. Connect directly: a pooler
// that hands out another server connection per transaction loses notifications, and speaks no replication.
//
// The relay's sessions set what they rely on when they begin: no time-outs, UTF8, read committed, pg_catalog first in the
// search path, and commits that wait for this server's disk but for no standby. Settings of the role or the database that
// say otherwise are for your sessions.
//
// After a failover connections to two servers may be open at once. Snapshots, transaction ids and places of two servers
// are never combined: a source reads from one server process, and uses connections to that one alone for all that
// is said of the log. When a new connection leads elsewhere the source begins again, from what the new server has stored.
//
// # Rights
//
// Both sources, since a stream begins with a poll and is healed by one:
//
//	USAGE on schema troupe
//	SELECT, DELETE on troupe.outbox
//	SELECT, INSERT, UPDATE on troupe.relay_leases, troupe.relay_state
//	SELECT, INSERT, UPDATE, DELETE on troupe.outbox_trouble
//	SELECT (action, lsn, row_id, row_position, table_name) on troupe.outbox_repairs: without it a discarded row may be published
//	after a crash, and the log says so
//	SELECT, INSERT, UPDATE on troupe.relay_slot_samples: without it nobody sees how the slot stood, and the log says so
//
// Of a table with a mapping only these:
//
//	USAGE on schema troupe
//	SELECT on the table, which is read where its slot does not tell it
//	SELECT, INSERT, UPDATE on troupe.relay_leases, troupe.mapped_tables
//	SELECT, INSERT, UPDATE, DELETE on troupe.mapped_trouble
//	SELECT (action, lsn, row_id, row_position, table_name) on troupe.outbox_repairs, as above
//	SELECT, INSERT, UPDATE on troupe.relay_slot_samples, as above
//
// Wal also: the attribute REPLICATION (on RDS: the role rds_replication), wal_level = logical, a free one of
// max_replication_slots and of max_wal_senders, and a line of pg_hba.conf for its database. The publication troupe_outbox is
// made by the migrations. Partitions are made and dropped by a relay whose role owns the table.
package relay
