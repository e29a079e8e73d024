// Package modeltest runs random histories of participants against a small model and compares the results.
//
// A history is a plan: a setup (batch, partitions, attempts, Kafka or local work, handler kinds, a second group, defaults of the
// role) and steps. Steps send messages whose bodies script their handlers, start, stop, kill and freeze members of two versions, cut
// their connections, restore the database to an earlier copy, delete identities and answers as their retentions do, delete and create
// topics, make them local and return them to Kafka while members of both kinds run, start the second group late, let the outbox reach
// the end of a partition and drop earlier ones, and let an operator redrive, discard, release and retry. Local work also runs without
// a relay. rapid draws the plan from a seed and shrinks one that fails. Members are processes of their own on a real Postgres, and on
// the embedded broker or the one in TROUPE_KAFKA.
//
// A restore of the database loses the messages that were local work and not in the copy, since they were in the database alone; the
// ones in Kafka are read again.
//
// After the last step, one healthy member must end all messages. Then the model decides, from the plan and
// the operator's actions alone, which ends each message may have:
//
//	effects    each life of a message (its first delivery and each redrive) has one effect, one refusal or one dead letter
//	order      messages of a key take effect in the order in which they were sent; but while topics become local, a message in
//	           Kafka and one in local work may take effect in any order
//	answers    each life of a command has one answer, with one id however often it was rendered
//	visible    a message without an effect has a refusal, a dead letter or a recorded reason: every message is accounted for
//	progress   while some message has not ended, something changes
//
// By default the test runs the same few histories each time. TROUPE_MODEL is the time for which random ones run, e.g. 10m,
// TROUPE_MODEL_WORKERS the number that run at once.
package modeltest
