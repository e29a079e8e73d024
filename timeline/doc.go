// Package timeline puts together what became of one business key, or of one flow by its correlation id: the commands
// and events of all hops, what waits in an outbox, what is held for its next attempt, and dead letters, each behind what
// caused it. It only reads.
//
// What it knows comes from two kinds of sources, of which any number may be missing:
//
//	source                 gives
//	topics of the flow     commands, events, copies of dead letters
//	a service's database   rows of its outbox that are not published yet, with their trouble; held messages with their
//	                       attempts; dead letters with what became of them
//	the brokers' groups    how far each hop has read
//
// Rows that the relay has published are gone from an outbox, so the topics hold most of a flow and the databases hold
// what is stuck. What could not be read is in Timeline.Unseen, by name and with the reason: a Timeline without Unseen
// is whole for its time span.
//
// # Which records are read
//
// Those of the flow's topics since Config.Since, up to where the topics ended when reading began. A record says by its
// key where it stands, so for a business key one partition per topic is read: the one that murmur2 gives, as every
// Kafka client computes it. Where nothing of the flow has the text as its key it is taken for a correlation id, a
// message's id or a dead letter's, and the other partitions are read too. Records that were written before partitions
// were added stand where the old number put them: Config.ScanAll finds those.
//
// # What is concluded
//
// A Finding says what a flow waits for: a row that is not published, a message that is held, a dead letter that is
// open, a command without an answer, an event that a group has not reached. Groups are read first, databases second,
// topics last, so that a message on its way from one to the next is seen at least once, and a flow that moves while it
// is looked at does not seem to have lost anything.
//
// # Order
//
// Entries are in the order of time, but never before what caused them: clocks of different servers disagree. The time
// of a message is when its row was written, not when the relay published it.
//
// # Limits
//
// Config.MaxRecords bounds what is read of topics, MaxEntries what is kept; 1,000 rows are read of each table, for at
// most Config.Timeout per database. What a limit cut off is in Unseen. Only the first 4 KiB of a payload are kept.
package timeline
