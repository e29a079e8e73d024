// Package doctor looks at the servers that a service and its relay use, and says what is wrong there and what to do
// about it. It changes nothing, and it asks for nothing that production would not be asked for.
//
//	examined    findings
//	database    reached, or by which of the usual causes not; as whom; a pooler that gives out other sessions; the
//	            server's version; a standby; an encoding other than UTF-8; settings that lose commits; connections
//	            that are left; the clock beside this machine's; the migrations beside this program's
//	privileges  for each Part that is asked about, what its role lacks, with the GRANTs that give it and no more
//	log         whether rows can be streamed, and slots: how many are left, which nobody reads, how much they hold
//	outbox      positions left, parked rows, topics of the rows that wait
//	Kafka       reached, each broker at the address that it gives out; versions and features
//	topics      those of the flow or of the hops that are named, and those that rows wait for: there, writable, how
//	            many replicas must have a message, compacted, kept too short, what this client may not do with them
//	registry    reached, and the level of compatibility that it holds schemas to
//
// Each finding has a level: ok and info are nothing to act on, a warning is what a bad day makes a failure of, and a
// failure is what stops a part. A warning and a failure have a remedy, a command or a statement where there is one.
//
// Not promised: that what is well stays well; that a client with other rights or at another place finds the same;
// that a broker's version is more than what its protocol shows.
package doctor
