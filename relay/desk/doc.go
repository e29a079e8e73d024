// Package desk is what people see of the relays of a database, and what they do about them. It works on the tables alone,
// whether a relay runs or not, and wherever it runs: the relay's commands, its admin port and the console all use it.
//
// # What is seen
//
// Look tells of each outbox of a database (troupe.outbox, and each table with a mapping) who holds which shard, from where
// its rows are read and why, what its replication slot keeps from the server now and kept in the last day, whether it is
// paused, and how many rows are in trouble, by topic. All of it stands in tables that relays write: nothing is asked of a
// relay. A standby writes nothing, so it is not among them; it says of itself that it is one (/readyz, /status).
//
// # What is done
//
// Retry and Discard act on parked rows: one, or all of a topic. Pause and Resume act on an outbox: all its relays heed them,
// also those that begin later. Each is one statement with the record of who did it and why, in troupe.outbox_repairs and
// troupe.relay_pauses; of many rows, one statement for each 500, so an error leaves done what was done.
//
//	what                     who heeds it           within
//	Retry                    the holder             its next look: Config.Interval of the relay
//	Pause, the log is read   the holder             at once; 20 s where the message in the log is missed
//	Pause, poll              the holders            a third of the lease's length: 2 s unless set
//	Resume                   the same               1 s
//
// # Rights
//
// Who looks needs USAGE on schema troupe and SELECT on troupe.outbox, outbox_trouble, relay_leases, relay_state,
// relay_slot_samples, relay_pauses, mapped_tables and mapped_trouble. Who acts also needs INSERT on outbox_repairs and
// relay_pauses, UPDATE and DELETE on outbox_trouble and mapped_trouble, DELETE on outbox, INSERT and UPDATE on relay_leases.
package desk
