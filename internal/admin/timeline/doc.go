// Package timeline shows what happened to one business key, or to one flow by its correlation id: the commands and events of all
// hops, messages that wait in an outbox, messages that are held for their next attempt, and dead letters, each after its cause.
// It only reads.
//
// It has two kinds of sources, of which any number may be missing:
//
//	source                 gives
//	topics of the flow     commands, events, copies of dead letters
//	a service's database   rows of its outbox that are not published yet, with their failures; held messages with their
//	                       attempts; dead letters with their status
//	the brokers' groups    the progress of each hop
//
// The relay deletes published rows from an outbox, so the topics hold most of a flow and the databases hold the messages that are
// stuck. Sources that could not be read are listed in Timeline.Unseen, by name and with the reason: a Timeline without Unseen is
// complete for its time span.
//
// # Which records are read
//
// The records of the flow's topics since Config.Since, up to the ends of the topics when reading began. The key of a record
// decides its partition, so for a business key one partition per topic is read: the one that murmur2 gives, as every Kafka client
// computes it. If no message of the flow has the text as its key, the text is taken for the id of a flow, a message or a dead
// letter, and the other partitions are read too. Records that were written before partitions were added are in the partition that
// the old number gave; to read them, set Config.ScanAll.
//
// # Findings
//
// A Finding names the reason why a flow does not continue: a row that is not published, a message that is held, an open dead
// letter, a command without an answer, an event that a group has not reached. Groups are read first, databases second, topics
// last. So a message that moves from one source to the next is seen at least once, and a flow that continues while it is read
// does not seem to have lost a message.
//
// # Order
//
// Entries are ordered by time, but each one after its cause, since the clocks of different servers disagree. The time of a
// message is the time at which its row was written, not the time at which the relay published it.
//
// # Limits
//
// Config.MaxRecords limits the records that are read of topics, and MaxEntries and MaxBytes the entries. At most 1,000 rows are read of each
// table, and Config.Timeout limits the time per database. Unseen lists what a limit has cut off. A payload of more than 1 MiB, or
// of more than 4 KiB as JSON, is not shown.
//
// A batch that unpacks to more than 64 MiB is passed over, up to 100 of them, and Unseen has its offsets.
package timeline
