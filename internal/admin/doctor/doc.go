// Package doctor examines the servers that a service and its relay use, and reports problems with their remedies. It only reads,
// so it can be run against production servers.
//
//	examined    findings
//	database    whether it can be reached, or the usual cause why not; the role; a pooler that gives out other sessions;
//	            the server's version; a standby; an encoding other than UTF-8; settings that lose commits; connections
//	            that are left; the clock, compared with this machine's; the migrations, compared with this program's
//	privileges  for each Part: the rights that its role lacks, with the GRANTs that give these and no more
//	log         whether rows can be streamed; slots: how many are left, which have no reader, how much they retain
//	held        held messages, and entries of local work, that no member tries
//	outbox      positions left, parked rows, topics of the rows that wait
//	Kafka       whether each broker can be reached at its advertised address; versions and features
//	topics      of the flow, of the given hops and of the rows that wait: whether they exist and can be written, how many
//	            replicas must have a message, compaction, short retention, missing rights of this client
//	registry    whether it can be reached, and its compatibility level
//
// Each finding has a level. Ok and info require no action. A warning becomes a failure under load or after another fault. A
// failure stops a part. A warning and a failure have a remedy: a command or a statement where possible.
//
// Not promised: that the result stays true; that a client with other rights or at another place gets the same result; that a
// broker's version is exact, since the protocol does not show it.
package doctor
