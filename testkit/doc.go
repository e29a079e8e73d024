// Package testkit gives each test its own databases and topics on a real Postgres, a broker and a schema registry. Import it in
// tests only.
//
// The servers are started on first use and shared by the tests of one binary. TROUPE_POSTGRES, TROUPE_KAFKA and TROUPE_REGISTRY
// name other servers to use instead. Names isolate the tests: Database and EmptyDatabase return a database of the test's own,
// Flow a prefix for topics and groups. Both are removed at the test's Cleanup. Tests may run in parallel.
//
// A package whose tests use testkit has
//
//	func TestMain(m *testing.M) { testkit.Main(m) }
//
// which closes the servers in order and fails the package if goroutines are left. Without it the servers end with the process.
//
// # Handlers
//
// A Stage tests the handlers of a service in their real environment: registered with a participant that consumes from a broker and
// commits to Postgres. It has its own database, topics and group. The tests of a binary share the servers, so that every stage after the
// first starts in a fraction of a second. A test sends messages and waits for their results:
//
//	Command, Event        return a message; nothing is sent yet
//	Send                  delivers in order; the same one twice is a duplicate
//	Produce               delivers arbitrary bytes, which no Troupe program would send
//	Await                 returns the outcome event of a command, typed
//	AwaitDeadLetter       returns the row in troupe.dead_letters
//	AwaitHeld, Advance    wait for a failed message that is held, and skip its back-off
//	Deadlines             returns the scheduled deadlines; Advance makes them due
//	Settle                waits until all sent messages are handled, held or dead: for messages without an effect
//	Replay                delivers all sent messages again, as after a reset of the group's offsets
//	Entries               returns the messages that the handlers wrote for other hops
//
// VerifyFlow checks the declarations of a flow, without a Stage.
//
// No relay runs: tests read the messages of a handler from the outbox. Commands are sent as a relay of another service would send
// them.
//
// # Crashes
//
// CrashAtEveryStep checks that a handler has one effect wherever it is interrupted. It counts the statements of the handler's
// transaction on the wire, from the write on that inserts the message's id into the inbox, and cuts the connection before and
// after each of them, in a run each. For handler and database this equals a crash of the process: the transaction ends without
// COMMIT or without its answer, and the message is delivered again. It detects an effect outside the transaction, made by another
// connection, a file or a call to another system, if the given Effect reads it.
//
//	connection is cut       in the database                       what the participant finds, and must do
//	before a statement      nothing of the transaction            no inbox row: run the handler again
//	after a statement       nothing, unless COMMIT followed in    the same, or as after COMMIT
//	                        the same write
//	before COMMIT           nothing of the transaction            the same; the handler had returned
//	after COMMIT            everything, and no answer arrived     the inbox row: nothing more to do
//
// Not covered: handlers that run at the same time, a frozen process, and the promises of the library itself, which its own tests
// check.
package testkit
