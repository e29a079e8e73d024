// Package sagas tells OpenTelemetry what the sagas of a coordinator do. What its participant does, messages, attempts and
// lag, is package telemetry's; the two go beside each other. It needs the API only; which SDK and exporters stand behind
// it, the program says.
//
//	m, err := sagas.New(sagas.Config{})
//	c, err := coordinator.New(ctx, m.Instrument(coordinator.Config{…}))
//	err = m.Observe(c)
//
// # Metrics
//
// Attributes are the coordinator's consumer group, types of sagas, their statuses and steps, kinds of events and how steps
// end, all of which the definitions limit: never a key or an id. Counters and histograms count what this process decided,
// from its start; a decision is counted when it is committed, of Start and Act before, since that transaction is the
// caller's.
//
//	troupe.saga.started        counter    sagas, by type
//	troupe.saga.ended          counter    sagas, by type and status: completed, compensated, abandoned
//	troupe.saga.parked         counter    times that a saga was parked, by type
//	troupe.saga.decisions      counter    events that were decided on, by type, kind, and whether they changed anything
//	troupe.saga.conflicts      counter    transactions that gave way to another one, and are run again
//	troupe.saga.stashed        counter    events that came before their saga, by type
//	troupe.saga.duration       histogram  s from the start of a saga to its end, by type and status
//	troupe.saga.step.duration  histogram  s from a command, or its compensation, to what ended it, by type, step,
//	                                      operation and end; see below
//	troupe.saga.open           gauge      sagas that have not ended, by type and status; parked ones are among them
//	troupe.saga.oldest.age     gauge      s since the oldest of them started, likewise; 0 where there are none
//	troupe.saga.stash          gauge      events that wait for their saga now, by type
//
// The gauges are what the database says of all processes together, so that each of them gives the same: take the maximum
// and not the sum. They cost two statements whenever somebody collects.
//
// A step's duration is that between two decisions by the database's clock, so queues and outbox are in it. It is measured
// where one process decides both, as it does while it keeps the partition of the saga's key, and for the last 32,768 steps
// at least; other steps are not in the histogram. A step ends as completed, refused, exhausted, timeout (which may be
// answered later), or, of a compensation, completed or failed. What a person ended by resolve or skip is not measured.
package sagas
