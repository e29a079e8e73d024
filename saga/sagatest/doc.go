// Package sagatest tests definitions of sagas: given what has happened, when something happens or time passes, then this
// follows. It runs them as a coordinator does, on coordinator.Memory: saga.Decide, how messages find their sagas, the stash of
// what comes early, locks and deadlines are those of production, and only the clock is virtual. Ten days take microseconds.
// Imported by tests only.
//
//	f := sagatest.New(t, approval, reminder)
//	f.Given(submitted)
//	f.WhenTimePasses(10 * 24 * time.Hour)
//	f.ThenDeadlinesMet("reminder").ThenEvents(sagatest.Emitted{Type: "ReminderDue"})
//
// A Then speaks of what followed from the last When, or of how things stand after it. One that does not hold ends the test
// with what was wanted, what there was, and the whole history.
//
//	ThenCommands, ThenNoCommands, ThenEvents,      what followed from the last When
//	ThenNoEvents, ThenDeadlinesMet, ThenNothing,
//	ThenRefused
//	ThenActive, ThenStatus, ThenData,              how things stand
//	ThenScheduled, ThenNoDeadlines
//
// Coverage says which phases of which steps the tests have come to, and Explore plays many random histories and looks at
// what must hold in each.
//
// # Not tested here
//
// What lies between coordinator and hops: relays, redelivery, a hop's retries. Its testing is package participanttest's, and
// that of the flow as a whole the test of the flow on testkit. Every interleaving of a definition is what troupe saga
// explore looks at.
package sagatest
