// Package schedule runs schedules: at each time of a cron expression one starts a saga or sends a message. A schedule is a row of
// troupe.schedules, and each coordinator of its database runs it.
//
//	row ─► claim: due, FOR UPDATE SKIP LOCKED ─► start the saga, or write to the outbox ─► next_at moves on ─► commit
//
// Promised: an occurrence is run in the transaction that moves next_at on, so it is run once by any number of members. Its id is the
// name with the time of the occurrence: a saga has it as its key, and a message an id that is derived from it and the row. An occurrence that is run
// again, since the database was set back, gives the same key and the same id, which receivers pass over.
//
//	event                                effect
//	two members at once                  one claims the row, the other passes over it
//	a crash before the commit            nothing is stored; the occurrence is run again
//	no member ran                        the latest missed occurrences are run, as many as catch_up says; the others are skipped,
//	                                     with a line in the log. With 0, an occurrence that is more than a minute late is skipped
//	the saga of an occurrence exists     it stays as it is, and counts as started
//	a member does not know the saga      another member runs it; if there is none, troupe doctor warns
//	it cannot be run                     the error is stored, and it is tried again after 1 s, 2 s, … 5 minutes. Others go on
//	another session locks its saga       after 5 s, the same
//	the database does not answer         after 30 s, another connection is tried
//	the zone's rules have changed        the next occurrence is the one whose time is nearest to next_at, so it runs once also while
//	                                     members have both rules
//	the database's clock is set back     nothing is run until the clock has reached next_at again
//	it is paused                         no occurrence is run; resume goes on with the next one, and those meanwhile are skipped
//	cron or zone are changed             it goes on with the next occurrence after now, and after the last one that was run
//	another field is changed             an occurrence that is due runs with the new values
//
// Not promised: that an occurrence is run at its time to the second, or before the next saga of the same schedule begins; that a clock
// which was set forward by mistake runs no occurrence early.
package schedule
