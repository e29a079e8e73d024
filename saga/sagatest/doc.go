// Package sagatest tests definitions of sagas in the form given, when, then. It runs them in memory, as a coordinator
// does: saga.Decide, how messages find their sagas, the stash for early events, locks and deadlines are the production code, and
// only the clock is virtual. Ten days take microseconds. Import it in tests only.
//
//	f := sagatest.New(t, approval, reminder)
//	f.Given(submitted)
//	f.WhenTimePasses(10 * 24 * time.Hour)
//	f.ThenDeadlinesMet("reminder").ThenEvents(sagatest.Emitted{Type: "ReminderDue"})
//
// A Then method checks the effects of the last When, or the state after it. If it fails, it ends the test and prints the
// expectation, the actual value and the whole history.
//
//	ThenCommands, ThenNoCommands, ThenEvents,      the effects of the last When
//	ThenNoEvents, ThenDeadlinesMet, ThenNothing,
//	ThenRefused
//	ThenActive, ThenStatus, ThenData,              the state
//	ThenScheduled, ThenNoDeadlines
//
// Verify checks definitions without a history: it reports mistakes that have an effect in some case only.
//
// # Not tested here
//
// The path between coordinator and hops: relays, redelivery, a hop's retries. Package testkit tests these, and a test of
// the flow on testkit tests the whole. To search every interleaving of a definition, and to list
// the parts that no history reaches, use troupe saga explore.
package sagatest
