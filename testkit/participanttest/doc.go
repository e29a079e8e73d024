// Package participanttest tests the handlers of a service the way they will run: registered with a participant that
// consumes from a broker and commits to a Postgres. Imported by tests only.
//
// A Stage is that participant with a database, topics and a group of its own. Servers are those of testkit, shared by
// the tests of a binary, so that a stage after the first costs a fraction of a second; what testkit says of TestMain, of
// servers elsewhere and of tests in parallel holds here too. A test sends messages and waits for what becomes of them:
//
//	Command, Event        make a message; nothing is sent yet
//	Send                  delivers in order; twice is a duplicate; another order is that order
//	Produce               delivers bytes as they are, for what no sender of ours would send
//	Await                 the outcome event of a command, typed
//	AwaitDeadLetter       the row in troupe.dead_letters
//	AwaitHeld, Advance    a failed message behind its back-off, and time that passes at once
//	Deadlines             what is scheduled; Advance makes it come
//	Settle                everything that was sent is done, held or dead: for what leaves no trace
//	Replay                everything that was sent is delivered again, as after a reset of the group's offsets
//	Entries               what the handlers wrote for other hops
//
// No relay runs: what a handler emits is read from the outbox. Commands are sent as a relay of another service would.
//
// # Crashes
//
// CrashAtEveryStep holds a handler to what it promises: one effect, wherever it is interrupted. It counts the
// statements of the handler's transaction on the wire, from the write on that inserts the message's id into the inbox,
// and ends the connection before and after each of them, in a run each. To handler and database that is what a crash of
// the process is: the transaction ends without COMMIT or without its answer, and the message comes again. What it
// catches is an effect outside the transaction, by another connection, a file or a call to somebody else, as far as the
// Effect that it is given sees it.
//
//	connection ends         in the database                       what the participant finds, and must do
//	before a statement      nothing of the transaction            no inbox row: run the handler again
//	after a statement       nothing, unless COMMIT was on its     the same, or as after COMMIT
//	                        way behind it in the same write
//	before COMMIT           nothing of the transaction            the same; the handler had come to its end
//	after COMMIT            everything, and nobody heard of it    the inbox row: nothing more to do
//
// Not covered: handlers that run at the same time, a process that is frozen, and what the library itself promises, which
// its own tests hold.
package participanttest
