// Package watch observes a flow without an orchestrator. It reads the flow's topics in parallel with the services, stores each
// message with its cause, and reports where the flow deviates from the declarations of its services. It takes no part in the
// flow, which behaves the same whether it is watched or not.
//
//	<flow>.*.commands ─┐                       ┌─► findings: missing, late, stuck join, unexpected
//	<flow>.*.events   ─┼─► Watcher ─► Postgres ┤
//	<flow>.*.dlq      ─┘   headers only        └─► Desk: Find, Show, Findings
//
// # Promised
//
// It changes nothing in the flow. It fetches records and queries the begin and end of topics. It joins no group, commits no
// offset and writes no message, and it neither reads nor locks a table of a service. Its offsets are in its own database.
//
// Each record is stored once. Offsets move in the transaction that stores the records before them, and only from the value that
// the watcher has left. So it may be killed at any moment, be started late, or run twice: then one of the two stores at a time. A
// topic that it has not read before is read from Config.Since on. A topic that was deleted and created again counts as another
// topic, and is read from its beginning.
//
// No finding comes too early. The watcher queries the end of all topics, stores all records before these ends, and only then
// judges, up to the time of the query: an answer that it has not read yet is never reported missing. So it reports no missing
// answer while it catches up.
//
// A finding becomes late when the missing message arrives. If the declarations or Config.Answer change, the watcher deletes the
// findings and judges all stored messages again.
//
// # Rules
//
//	declared                       required                                     within            found by
//	reaction that sends something  one of success or failure, or exhausted      Answer            its cause
//	join, from its first message   one of success, expired or broken            within + Answer   its key
//	expectation                    one of expect                                within            its key
//	the same                       one of expect, or raise                      within + Answer   its key
//
// Times are the timestamps of the records, which the relay's host sets. A record whose time is in a period that is already judged
// counts as one microsecond after that period, and a record from the future counts as of now. A message whose type no service
// declares to send on that topic is unexpected. It is reported once per topic and type, and counted.
//
// # Failures
//
//	failure                                       effect
//	crash at any moment                           continues after the last transaction; findings that were stored and not passed
//	                                              to Config.Found are in the tables
//	the database or the brokers are away          waits, logs every 30 s, and continues; nothing is judged meanwhile.
//	                                              The database also counts as away if a step takes longer than
//	                                              5 minutes, or the start of a session longer than an hour
//	tables, rights or the password are missing    Run returns the error
//	records were deleted before they were read    logged with their number; answers among them are reported missing
//	a topic is deleted                            after 30 s judging continues with the others; its unread answers are reported missing
//	a record without headers                      is stored as a flow of its own
//	a batch that unpacks to more than 64 MiB      is recorded in troupe.unreadable_batches; the other partitions are stored, and
//	                                              nothing is judged until `troupe batch skip` marks it or the topic's retention
//	                                              deletes it; answers in a skipped batch are reported missing
//	ids and keys that are long, or not text       are stored as their hash; the original text still finds them
//	an answer is due after the retention          Run logs a warning when it begins: a missing one is not found
//	10,000 names of topics and types              further types are stored under one name, "(other)"
//	the relay is away                             answers are missing, and late when it is back, which is true
//	another watcher of the flow                   the transactions of one of them fail each time; both log it
//	another one with other declarations           the same, as in a rolling deploy; each begins to judge again by its own, and the one
//	                                              that is left has judged all stored messages by its own
//
// # Growth
//
// A message takes about 220 bytes with its index entries, whatever its payload. The tables are rings of 16 partitions, one per
// day of UTC. Each day older than Config.Retention is truncated, at a cost that does not depend on the number of rows. Messages
// are not deleted row by row, so they need no vacuum.
//
// # Not promised
//
// Flows without headers: messages without ce_correlationid and ce_causationid are not put together. Payloads: they are not
// stored; package timeline reads them. Repeated answers: a second answer of a service is shown, but is no finding.
//
// # Least privilege
//
// At the brokers the watcher needs Read and Describe on the topics, and nothing on groups. In its database its role needs the
// rights that `outbox-relay grants watch` prints. Desk needs SELECT on the tables troupe.watch_….
package watch
