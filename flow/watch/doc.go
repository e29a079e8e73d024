// Package watch sees a flow that nobody orchestrates: it reads the flow's topics beside the services, keeps who said what
// because of what, and says where that is not as the services declare it. It takes no part: a flow is the same whether it is
// watched, was watched once, or never.
//
//	<flow>.*.commands ─┐                       ┌─► findings: missing, late, stuck join, unexpected
//	<flow>.*.events   ─┼─► Watcher ─► Postgres ┤
//	<flow>.*.dlq      ─┘   headers only        └─► Desk: List, Show, Findings
//
// # Promised
//
// It changes nothing. It fetches, and asks where topics begin and end; it joins no group, commits no offset, writes no message,
// takes no lock, and no table of a service is read. How far it has read is in its own database.
//
// Each record is stored once. Offsets move in the transaction that stores what is before them, and only from where the watcher
// has left them: it may be killed anywhere, started late, or run twice, of which one then writes at a time. A topic that it has
// not read before is begun at Config.Since. A topic that is made anew under its name is another, and is read from its beginning.
//
// Nothing is found too early. The watcher asks the brokers where all topics end, stores everything before, and only then
// judges, up to when it asked: an answer that it has not read yet is never missing. So while it catches up it finds nothing.
//
// What is found is taken back when it comes: it is then late. Another declaration, or another Config.Answer, forgets the
// findings and judges all that is stored anew.
//
// # What is judged
//
//	declared                       wanted                                       within            by
//	reaction that sends something  one of success or failure, or exhausted      Answer            its cause
//	join, from its first message   one of success, expired or broken            within + Answer   its key
//	expectation                    one of expect                                within            its key
//	the same                       one of expect, or raise                      within + Answer   its key
//
// Times are those of the records, which the relay's host sets; what is up to a moment that is judged already counts as of the
// next microsecond, and what is from the future as of now. A message of a type that no service declares to send is unexpected: it is
// told of once for each topic and type, and counted.
//
// # What becomes of a failure
//
//	failure                                       effect
//	crash at any moment                           goes on from the last transaction; what was found and stored, and not told
//	                                              to Config.Found, is in the table
//	the database or the brokers are away          it waits, logs every 30 s, and goes on; nothing is judged meanwhile
//	tables, rights or the password are missing    Run returns the error
//	the log was deleted before it was read        logged with the number of messages; what they answered is found missing
//	a record without headers                      is stored as a flow of its own
//	ids and keys that are long or no text         are stored as their hash, and found by the text all the same
//	10,000 names of types                         those that come then are one, "(other)"
//	the relay is away                             answers are missing, and late when it is back: that is how it was
//	another watcher of the flow                   transactions of one of them fail, each time; both log it
//
// # Growth
//
// A message takes about 220 bytes with its index entries, whatever its payload. Tables are rings of 16 partitions, one for a day of
// UTC: a day that is past Config.Retention is truncated, which costs the same whatever was in it. No statement deletes rows
// one by one, and nothing has to be vacuumed away.
//
// # Not promised
//
// Flows without headers: what does not carry ce_correlationid and ce_causationid is not put together. Payloads: they are not
// stored; package timeline reads them. Repeats of what was declared: that a service answers twice is not found, but shown.
//
// # Least privilege
//
// At the brokers the watcher needs Read and Describe on the topics, and nothing on groups. In its database its role needs the rights that
// `outbox-relay grants watch` prints. Desk needs SELECT on the tables troupe.watch_….
package watch
