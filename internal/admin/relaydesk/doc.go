// Package desk shows the relays of a database to operators, and lets operators act on their outboxes. It only uses tables, so
// it works whether a relay runs or not, and from anywhere: the relay's commands, its admin port and the console all use it.
//
// # Reading
//
// Look returns, for each outbox of a database (troupe.outbox, and each table with a mapping), the holder of each shard, the
// source of its rows and why, how much log its replication slot retains now and retained in the last day, whether it is
// paused, and how many rows failed, by topic. All of it is read from tables that relays write, and from the server's
// views of its slots: no relay is queried. A standby writes nothing, so Look does not return it; its own /readyz and /status
// report that it is a standby.
//
// # Acting
//
// Retry and Discard act on parked rows: one row, or all rows of a topic. Pause and Resume act on an outbox: all its relays
// obey, also relays that start later. Each action is one statement, which also records the operator and the reason in
// troupe.outbox_repairs or troupe.relay_pauses. An action on many rows is one statement for each 500 rows, so after an error
// the rows of the earlier statements stay changed.
//
//	action                   obeyed by              within
//	Retry                    the holder             its next poll: Config.Interval of the relay
//	Pause, source wal        the holder             at once; 20 s if it misses the message in the log
//	Pause, source poll       the holders            a third of the lease's length: 2 s by default
//	Resume                   the same               1 s
//
// # Rights
//
// To read, a role needs USAGE on schema troupe and SELECT on troupe.outbox, outbox_failures, relay_leases, relay_state,
// relay_slot_samples, relay_pauses, mapped_tables and mapped_failures. To act, it also needs INSERT on outbox_repairs and
// relay_pauses, UPDATE of four columns of outbox_failures and mapped_failures, DELETE on both, DELETE on outbox, INSERT and UPDATE on relay_leases.
package desk
