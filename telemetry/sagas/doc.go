// Package sagas reports a coordinator's sagas to OpenTelemetry. Package telemetry reports the messages, attempts and lag of the
// coordinator's participant: use both. Package sagas needs the API only; the program chooses the SDK and the exporters.
//
//	m, err := sagas.New(sagas.Config{})
//	c, err := coordinator.New(ctx, m.Instrument(coordinator.Config{…}))
//	err = m.Observe(c)
//
// # Metrics
//
// Attributes are the coordinator's consumer group, types of sagas, their statuses and steps, kinds of events and how steps end,
// all of which the definitions limit: never a key or an id. Counters and histograms count the decisions of this process, from its
// start. A decision is counted when it is committed; one of Start and Act is counted before, since that transaction is the
// caller's.
//
//	troupe.saga.started        counter    sagas, by type
//	troupe.saga.ended          counter    sagas, by type and status: completed, compensated, abandoned
//	troupe.saga.parked         counter    times that a saga was parked, by type
//	troupe.saga.decisions      counter    events that were decided on, by type, kind, and whether they changed anything
//	troupe.saga.conflicts      counter    transactions that gave way to another one, and are run again
//	troupe.saga.stashed        counter    events that came before their saga, by type
//	troupe.saga.duration       histogram  s from the start of a saga to its end, by type and status
//	troupe.saga.step.duration  histogram  s from a command, or its compensation, to the event that ended it, by type, step,
//	                                      operation and end; see below
//	troupe.schedules.lateness  histogram  s from the time of an occurrence of a schedule until it began; 0 for one that an operator
//	                                      requested
//	troupe.saga.open           gauge      sagas that have not ended, by type and status, including parked ones
//	troupe.saga.oldest.age     gauge      s since the oldest of them started, likewise; 0 if there are none
//	troupe.saga.stash          gauge      events that wait for their saga now, by type
//	troupe.saga.kept           gauge      events that are kept for sagas that have not ended, until a step awaits them, by type
//
// The gauges come from the database and cover all processes together, so each process reports the same values: take the maximum
// and not the sum. They cost two statements at each collection.
//
// A step's duration is the time between two decisions by the database's clock, so queues and outbox are in it. It is measured if
// one process makes both decisions, as it does while it keeps the partition of the saga's key, and for the last 32,768 steps at
// least; other steps are not in the histogram. A step ends as completed, refused, exhausted, timeout (which may be answered
// later), or, for a compensation, completed or failed. Steps that an operator ended by resolve or skip are not measured.
package sagas
