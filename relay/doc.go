// Package relay publishes the rows of an outbox to Kafka. It reads them from the table (poll) or from the server's log (wal).
//
//	poll   troupe.outbox ──claim──► relay ──send──► Kafka
//	             ▲                    │◄────ack──────┘
//	             └──────delete────────┘   under the term of the lease
//
//	wal    troupe.outbox ─► log ─► slot ──stream──► relay ──send──► Kafka
//	                                ▲                 │◄────ack──────┘
//	                                └──── confirm ◄── store the checkpoint, under the term of the lease
//
// Under poll the relay deletes a row once Kafka has acknowledged it.
//
// Under wal the row stays until its partition is dropped. The relay's checkpoint is an LSN: each row committed before it is published, or
// recorded in troupe.outbox_failures. The relay stores the checkpoint in troupe.relay_state, with a snapshot of the published transactions,
// before it confirms the LSN to the server. So a slot whose confirmed LSN is ahead of the checkpoint was created by another program. If the
// slot is lost, the snapshot shows which rows of the table are still to be published. While the relay creates a slot, it polls, and deletes
// the rows that it publishes.
//
// # Promises
//
// A row whose transaction committed is published at least once, always under one id. A row whose transaction rolled back is never
// published. Two rows of one key and one topic are published in the order of their positions: the first copy of the lower one comes
// before the first copy of the higher one, through every failure below. A row that cannot be published keeps its place in that order:
// later rows of its key wait until it is published, or until an operator removes it.
//
// Any number of relays may run. One is active, or under poll one for each shard. It holds the lease of its shard for a term. Each new
// holder raises the number of the term. Every delete, and every store of a checkpoint, checks the term in its own transaction.
//
// You can change the source at any time, in both directions: start the relay with the other one. If the slot is lost, the relay
// creates it again and reads the missing rows from the table. Neither loses a row. A change publishes again, under the same ids, at most
// the rows published since the last stored snapshot: some seconds.
//
// A relay that streams and is asked to stop finishes the transactions that it has begun to publish, within Config.Drain. The next relay then
// repeats nothing. Under exactly-once the relay aborts such transactions instead: consumers of committed messages see no repeat. A relay
// that is paused does not finish them: the next one repeats their rows.
//
// # Not promised
//
// Exactly-once delivery (unless you configure it, see below). A crash between the acknowledgement of rows and their delete, or the store of
// the checkpoint, publishes them again. So does an active relay that was frozen for longer than its lease, or than the time-out of its
// slot. And so does a partition that takes nothing for Config.UnknownTopic: the relay then gives up a record that a broker may have stored.
// Consumers recognise repeats by ce_id.
//
// Records that the brokers lose after the acknowledgement. A row is acknowledged when all replicas in sync have its record.
//
// Order between keys. Order between topics. Order between transactions that write one key and do not wait for each other: poll
// publishes those by position, among the rows that are visible at the same time, and wal in the order of their commits.
//
// Under poll a message can be published for a row that the database then loses in a crash, if the commit was not yet on its disk
// (synchronous_commit=off). Under wal it cannot: the server streams only transactions that are on its disk.
//
// Bounded memory for one row: a row of many megabytes is read whole before it is refused.
//
// # Failures
//
// Unless delivery is exactly-once, no relay reports that rows are repeated after a kill. The log shows `active` with the next term, and
// consumers see a ce_id twice.
//
// Of both sources:
//
//	failure                                effect
//	killed before the send                 nothing was sent; the next relay sends
//	killed between send and ack            sent again, same ids
//	stopped (SIGTERM), with a standby      the standby takes over at once
//	frozen, then awake                     may send again; deletes and confirms nothing; becomes a standby
//	the broker is away                     the relay waits; it parks nothing, counts no attempt, and is not ready
//	a partition takes nothing              (no leader, too few replicas in sync) after 60 s other partitions continue, and its
//	                                       rows are tried until they are accepted; under exactly-once all rows wait for it
//	the topic does not exist               the row is tried for 60 s, then parked; its key waits, others continue
//	the topic is denied (ACL)              the row is tried by Config.Retry, then parked; its key waits, others continue; a refusal
//	                                       counts as a try for all rows of the topic that were read
//	the row's topic is a relay's own       the row is parked at once; its key waits, others continue
//	too large, or bad headers              the row is parked at once; its key waits, others continue
//	this machine's clock is wrong          (the broker refuses the time of sending) no row is parked; rows are tried until the broker
//	                                       accepts them
//	text that is not UTF-8                 (databases of another encoding) the row is parked at once; its key waits
//	killed before a failure is recorded    the row is sent again, and this attempt is not counted
//	killed after that, before it is logged no log line and no PublishFailed; only troupe.outbox_failures shows the row
//	rows without a key                     wait for no other row
//	the data is another cluster's          (a copy, or a restored dump) all rows in the table are published, perhaps again
//	the database's clock is set back       a lease that was taken earlier lasts at most two minutes longer
//
// Of poll:
//
//	killed between ack and delete          sent again, same ids
//	killed after the delete                no effect
//	killed, with a standby                 the standby takes over when the lease has expired: 5 s by default
//	killed, and started again              the same: the relay waits until its own old lease has expired, and logs `standby`
//	a transaction commits late             its rows are found: every pass begins above the mark, below which no row can appear any more
//	the database is away                   the relay waits; it deletes acknowledged rows later if it still has the lease
//	a trigger or rule keeps published rows the relay publishes nothing more until it is removed, and reports the reason
//
// Of wal:
//
//	killed between ack and checkpoint      the rows published in the last second or so are sent again, same ids; while a partition takes
//	                                       nothing, also the acknowledged rows of the send that waits for it
//	killed after the checkpoint is stored  no effect: the next stream begins at it, whatever the server has confirmed
//	killed after a failure is recorded     the log delivers the row again: its record stays as it is, and the row waits as before
//	killed before a published row's failure record is deleted
//	                                       the row is sent again, same id
//	killed while a slot is created         the next relay drops that slot, and creates one again
//	killed after that, while the rows that the new slot does not deliver are read from the table
//	                                       the next relay reads the rows that are left; rows in flight are sent again, same ids
//	killed, with a standby                 the standby takes over when it sees that the slot is idle: Config.Lease at most
//	frozen, with a standby                 the server ends the stream after 5 s, then as above
//	a transaction commits late             it is streamed when it commits
//	a row is discarded, then a crash       the log has the row again; the relay passes over it
//	a transaction of any size              passes in bounded memory; after a kill in between it is streamed again from its first row,
//	                                       and rows of it that were published are repeated, same ids
//	a connection is cut                    the stream begins again at the stored checkpoint; a standby may take over meanwhile
//	the checkpoint cannot be stored        rows are published all the same; after a while the relay is not ready, with the reason; a
//	                                       kill repeats all rows since the last store
//	synchronous_standby_names matches it   commits of other sessions wait until the relay confirms them, a second or more; the relay's
//	                                       own commits do not wait; it logs a warning
//	a commit waits for a standby           its rows may be published, or recorded as failed, before other sessions see them
//	the server decodes a huge transaction  the relay waits: after 15 s of silence another connection looks at the server. After
//	                                       30 to 40 s without a part of the log it is not ready. It does not know which rows wait, and
//	                                       its lag is 0
//	failover, the old primary still runs   the relay ends the old primary's stream, and continues with the checkpoint and the rows
//	                                       of the new one
//	failover to a standby that copied the slot
//	                                       continued from the checkpoint: the slot moves only once each connected standby has it, or after a
//	                                       minute. If the slot is ahead of it all the same, it is created again, as below
//	the server restarts                    the relay ends its stream, so that the server can stop, and connects again
//	the server crashes                     the relay has seen only transactions that were on disk
//	the slot is dropped, or lost           created again; rows that the stored snapshot does not contain are read from the table
//	another program creates the slot       the same: the relay recognises that slot, since it is ahead of the checkpoint
//	the publication is altered             not ready while it leaves out rows (poll under Auto); then the slot is
//	                                       created again, and rows that the log does not have are read from the table, in order
//	the log cannot be decoded              (the publication was dropped, or a column renamed, for a while) at the fifth failure at one
//	                                       LSN the slot is created again, and rows are read from the table
//	the slot is another database's         refused, and left alone: configure a slot of another name
//	the slot has two_phase                 refused, and left alone: it has the rows of prepared transactions that may be rolled back
//	a slot cannot be created, or not yet   the table is polled meanwhile; creating a slot waits for all open transactions
//	the slot holds much of the log         a warning, then not ready, then dropped at Config.SlotLimit (off by default)
//	the server holds the log back          not ready, with the reason: a standby in synchronized_standby_slots is absent
//	a column is added to the table         no effect
//
// The process that has dropped a slot at the limit does not create it again: it polls, and Status.GivenUp and an error in the log report
// that. A relay that is started again, or a standby that takes over, streams again.
//
// # Failed rows
//
// A row has a failure record in troupe.outbox_failures if it is parked, if it waits for its next try, or (under wal) if it waits behind such
// a row of its key. Under wal only the failure record makes the relay try the row again, since a stream delivers each row once:
//
//	you delete                poll                                      wal
//	the record and the row    the row is never published                the row is never published
//	the record alone          the row is tried again                    the row is never published, and stays in the table
//	the row alone             the row is never published                the row is never published
//
// If you delete the row alone, the relay deletes the failure record too: within two minutes after the end of every transaction that was open
// when the record was written. It cannot do so earlier. While the commit of a row waits for a synchronous standby, a stream delivers the
// row, and other sessions do not see it yet.
//
// For a row that a stream has delivered, the column wal also applies after a change to poll. So do not delete the failure record of a row
// that you want to try again: set it to retrying, with a next_try. The command outbox-relay parked retry does that.
//
// # Pauses
//
// The method Pause pauses one Relay, in its process. An operator's pause (outbox-relay pause, package internal/admin/relaydesk) is stored
// in the row of the outbox's lease, and pauses every relay that holds a lease of the outbox. A relay reads the stored pause when it takes a
// lease. Each renewal of the lease also returns whether the outbox is paused, and under wal a message in the log announces a change. So an
// idle relay runs no statement of its own to notice a pause. During a pause a relay reads the row each second, to notice the end.
//
// A paused relay keeps its leases. Rows in flight are finished, and other rows wait. Under wal the server keeps the log meanwhile.
//
// # How order survives a refused record
//
// The broker accepts or refuses a record batch as a whole. When it refuses a batch for good, the client fails all records that it holds for
// the partition. The relay gives the client all records of a send before the client writes the first one, and begins the next send when
// this one is settled. If the client has written several batches of the partition, the broker refuses the later ones by their sequence
// numbers. It forgets these where the client's last record is old, and there the relay sends one batch of the topic at a time, also in a
// backlog of rows whose mapping sets the timestamp. So when a record is refused, no later record of its partition was accepted. A refused
// batch of several records is sent again in halves until the record at fault is alone. Rows that failed are recorded before the next send,
// and a claim leaves out the rows behind them.
//
// # Shards
//
// Under poll the outbox may be divided into shards, by the hash of the key: each key belongs to one shard, which keeps its order. A row
// without a key belongs to a shard by its id. Each shard has its own lease. The holder of shard 0 is the leader: its configuration
// decides on the source and on the number of shards, and it maintains partitions and records. The other shards are taken by any relay.
//
//	the number changes    the leader stores the new layout, under which no old lease can be renewed, and waits
//	                      until the last old lease is released or has expired; only then are rows claimed under the new one
//	the source is wal     the leader makes it one shard before anything is streamed
//	a relay is started    it requests shards, one at a time, from relays that hold at least two more than it does; in the first
//	                      second after the holder has released such a shard, only the relay that requested it may take it
//	a relay is killed     its leases expire, and the others take them
//	a relay was frozen    as above; awake, it may send again, and deletes nothing
//
// Every renewal and every new lease locks the row of shard 0, and so does a change of the layout. So a renewal before the change is visible
// to the leader, and a renewal after it is refused. The number in force is troupe.relay_leases.shards in that row. To change it, start
// relays with another number: it applies when one of them becomes the leader. A relay that is configured for wal, or for exactly-once
// delivery, takes no shards.
//
// # How a backlog is polled
//
// A claim begins at the lowest row of the table, since a row may commit late. If there are more rows than one claim may take, the claim is
// the first one of a pass. The next claims of the pass continue after its last row, while the rows already claimed are sent. They take only
// rows that are visible in the snapshot of the first claim. So they need not begin at the lowest row, no transaction is open between
// claims, and a row that commits late is not overtaken by rows written after it.
//
// A pass leaves out rows that wait behind a parked row. It ends after a second, at any row that is not published, and when a row that
// others wait behind is published or removed.
//
// # Exactly once
//
// With Delivery ExactlyOnce (from the log only) whole Postgres transactions are published in Kafka transactions. Each Kafka transaction
// also writes the new checkpoint, as a record in a compacted topic (topics.Relay) of one partition. Consumers that
// read committed messages see every row once. The transactional id is the slot's name.
//
//	begin ─► rows ─► checkpoint ─► end ─► confirm to Postgres
//	  killed here: aborted    ─┘└─ killed here: published; the checkpoint shows it
//
// The active relay first takes the transactional id: this ends the open transaction of a predecessor and fences it. Then the relay commits
// a record of its own to the topic, reads the last checkpoint before that record, and streams from there. The client would commit the
// acknowledged records of a transaction even if another one failed. So the relay aborts the transaction if one record was not acknowledged,
// or if any other result is unknown. After an abort the relay makes a new client and a new stream, and reads the checkpoint again; it takes
// no position from memory. It confirms the checkpoint to Postgres only after the end of the transaction.
//
// A failed row is recorded before its transaction is aborted or ended. A crash in between leaves a row that is recorded, not published, and
// in the log again: then the row waits, as recorded. The relay does not try recorded rows again until the stream has passed the LSN up to
// which the log may repeat rows, and a checkpoint after that LSN is committed. Earlier, such a row could be published, and then be
// delivered by the log once more.
//
// Two kinds of rows are published in transactions of their own, without a checkpoint: recorded rows, and rows that the log does not have
// (first start, or a new slot). A crash between the end of such a transaction and the statement that deletes the failure records or the rows
// repeats these rows. Status.Repeats reports when rows that the log does not have are published. Nothing reports the repeat of a recorded
// row.
//
//	failure                                a consumer of committed messages sees
//	killed before the end                  each row once: the next relay aborts the transaction and sends again
//	killed after the end                   each row once: the next relay begins at the checkpoint
//	killed after the end, before the       that row twice
//	record of a failed row is deleted
//	the result of the end is not known     each row once: the relay takes the id again, which ends the transaction, and then
//	                                       reads the checkpoint
//	frozen, then awake                     no repeat: the broker refuses a relay that lost the id
//	killed, without another relay          nothing more of these partitions until TransactionTimeout has passed
//	a row is refused                       all other rows once; the refused row is recorded, and its key waits
//	too large for TransactionTimeout       nothing of it: at the second time Run returns an error with the remedy
//	there is no checkpoint                 the rows that were not confirmed to Postgres again; Status.Repeats reports it
//	a failover lost its transaction        the same
//	the server's disk is set back          the same, although the timeline is the same: the log lacks the checkpoint's commit
//
// # A table that is not troupe.outbox
//
// With Table and Mapping the outbox is a table of any shape. It is read from the log alone: none of its columns shows which rows are
// published, and the relay may not delete its rows, so it cannot be polled. Its relay has a lease, a slot, a publication and
// a checkpoint of its own (troupe.mapped_tables), and the promises above hold. A failed row is kept whole in
// troupe.mapped_failures, since its table need not keep it, and is mapped again when it is tried again.
//
//	failure                                effect
//	another program's slot, at first start continued from its LSN; refused while the other program streams it
//	the slot of another outbox             left alone: not ready, with the name of that outbox
//	no slot yet, or lost                   created again; the rows of the table are published, in the order of the mapping's
//	                                       position or timestamp: with an xid column the unpublished ones, else all
//	a slot cannot be created, or not yet   not ready, with the reason: creating a slot waits for all open transactions
//	killed while the table is read         it is read again from its first row; rows that were published meanwhile are repeated
//	a row deleted while there was no slot, or before the relay has logged "slot created"
//	                                       may be lost: the relay has never seen it, and drops a slot whose creation did not end
//	a row that cannot be mapped            parked, as is one whose partition does not exist; its key waits
//	the log cannot be decoded              not ready, with the reason: rows may be in the log alone, so an operator drops the slot
//	the publication is altered             not ready, with the reason: an operator drops the slot, or states that no row is missing
//	the slot is ahead of the checkpoint    not ready, with the reason: an operator states that it was synchronised before a
//	                                       failover, or drops it if another program made it
//	pg_upgrade has copied the slot         not ready, with the reason: an operator states that, or drops the slot
//	nothing streams the slot for long      (an operator must decide, or the table is read) the relay uses the slot now and then, so that the
//	                                       server does not give it up as idle
//	another slot is configured             not ready while the former one exists: rows may be in its log alone. The relay uses that slot too,
//	                                       and names the rows that may be lost if the server has given it up all the same
//	another table has its name             not ready: put the new table into the publication
//	renamed, or dropped, with failed rows  not ready, with their number: the relay of this table does not start, nor the relay of a
//	                                       new table, until an operator moves the rows to another table or deletes them
//	a column of the mapping is gone        not ready, and names it, until the mapping fits the rows in the log, or an operator
//	                                       drops the slot
//	(exactly-once) a transaction was       the row waits behind later rows of its key that were recorded before the abort: the table
//	aborted, its slot is lost, and a row   need not hold these rows any more, so their records are not made again
//	of it fails while the table is read
//	two failed rows of one event id        are one message
//	a failed row of more than 128 MiB      parked, and cannot be retried: its long columns are not kept
//
// # Avro
//
// With Config.Avro a payload that is JSON is encoded before it is sent.
//
//	failure                                effect
//	the payload does not fit its schema    the row is parked
//	the subject has no schema              the row is tried for as long as one whose topic does not exist, then parked
//	the registry refuses the subject       its rows are tried until they are accepted; after Config.UnknownTopic others continue
//	the registry is away                   rows wait, also rows of other topics behind a row whose schema is not cached
//
// # Connections
//
// While active under poll: one connection for the claims and deletes of each shard, one for notifications, and at times one for the lease
// and for maintenance. With several shards, one more looks for rows, and one is for the leases' notifications. An idle relay runs one
// statement per Config.Interval, which renews the leases of all shards and looks for their rows.
//
// While active under wal: one connection for replication, one for checkpoints and samples, and at times one for the lease and for
// maintenance. An idle relay runs some 10 statements a minute.
//
// A transaction that locks rows or a table is one statement, so a frozen relay blocks no other session. There are four exceptions. If the
// relay freezes in one of them, it keeps the locks until the server ends its connection:
//
//	a partition is created                 no other relay creates or detaches a partition; readers and writers do not wait
//	a detached partition is dropped        sessions that read this partition wait
//	closed records are removed             sessions that change the records of this batch wait; no other relay removes records of this kind
//	a mapped table is read                 in one statement, which may take long: the table cannot be altered
//
// Connect directly. Through a pooler that changes the server connection per transaction, notifications are lost, and replication is
// impossible.
//
// The relay's sessions begin with the settings that they rely on: no time-outs, UTF8, read committed, pg_catalog first in the search
// path, and commits that wait for this server's disk but for no standby. Other settings of the role or the database do not matter, with
// one exception. With synchronous_commit=off only stored checkpoints, new failure records, and under wal the deletes of failure records
// wait for the disk. After a crash of the server a poll publishes again the last rows that it deleted. The record of a row that a claim
// parks, since its text is not UTF-8, does not wait for the disk either: after a crash a claim parks the row again.
//
// After a failover, connections to two servers may be open at once. Snapshots, transaction ids and checkpoints of two servers
// are never combined: a source reads from one server process, and uses only connections to that process for statements
// about the log. When a new connection leads to another process, the source begins again from the checkpoint that the new server has.
//
// # Rights
//
// For both sources, since a stream begins with a poll, and polls while its slot is created again:
//
//	USAGE on schema troupe
//	SELECT, DELETE on troupe.outbox
//	SELECT, INSERT, UPDATE on troupe.relay_leases, troupe.relay_state
//	SELECT, INSERT, UPDATE, DELETE on troupe.outbox_failures
//	SELECT (action, lsn, row_id, row_position, table_name) on troupe.outbox_repairs: without it a discarded row may be published
//	after a crash, and the log warns of it
//	SELECT, INSERT, UPDATE on troupe.relay_slot_samples: without it the console has no history of the slot, and the log warns of it
//	SELECT (name, slot, updated_at) on troupe.mapped_tables: without it the relay does not notice that its slot is the slot of a
//	table with a mapping, and the log warns of it
//
// For a table with a mapping only these:
//
//	USAGE on schema troupe
//	SELECT on the table, for rows that its slot does not deliver
//	SELECT, INSERT, UPDATE on troupe.relay_leases, troupe.mapped_tables
//	SELECT, INSERT, UPDATE, DELETE on troupe.mapped_failures
//	SELECT (action, lsn, row_id, row_position, table_name) on troupe.outbox_repairs, as above
//	SELECT, INSERT, UPDATE on troupe.relay_slot_samples, as above
//	SELECT (slot, source, updated_at) on troupe.relay_state: without it the relay does not notice that its slot is the slot of
//	troupe.outbox, and the log warns of it
//
// Wal also needs the attribute REPLICATION (on RDS: the role rds_replication), wal_level = logical, one free slot of
// max_replication_slots and of max_wal_senders, and a line of pg_hba.conf for its database. The migrations create the
// publication troupe_outbox. Only a relay whose role owns the table creates and drops partitions, and removes closed records.
package relay
