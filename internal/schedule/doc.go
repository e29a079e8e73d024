// Package schedule runs schedules: a schedule starts a saga or sends a message at each time of a cron expression. It is a row of
// troupe.schedules, and each coordinator of its database runs it.
//
//	claim a due row, FOR UPDATE SKIP LOCKED ─► start the saga, or write to the outbox ─► advance next_at ─► commit
//
// Promised: an occurrence is run in the transaction that advances next_at, so any number of members run it once. Its id is the
// name with the time of the occurrence. A saga has this id as its key, and a message has an id derived from it. If the database was set back,
// an occurrence is run again, with the same key and the same id, and receivers skip it as a duplicate.
//
//	event                                effect
//	two members at once                  one claims the row, the other skips it
//	a crash before the commit            nothing is stored; the occurrence is run again
//	no member ran                        the latest missed occurrences are run, as many as catch_up says; the others are skipped,
//	                                     with a line in the log. With 0, an occurrence that is more than a minute late is skipped
//	the saga of an occurrence exists     it stays unchanged, and the occurrence counts as run
//	a member does not know the saga      another member runs it; if there is none, troupe doctor warns
//	an occurrence cannot be run          the error is stored, and it is tried again after 1 s, 2 s, … 5 minutes. Other schedules continue
//	the database's clock is set back     nothing is run until the clock has reached next_at again
//	the schedule is paused               no occurrence is run; resume continues with the next one, and skips the ones meanwhile
//	cron or zone are changed             next_at is the first time after now, and after the last occurrence that was run
//	another field is changed             an occurrence that is due runs with the new values
//
// Not promised: that an occurrence is run at its time to the second, or before the next saga of the same schedule begins; that a clock
// which was set forward by mistake runs no occurrence early.
package schedule
