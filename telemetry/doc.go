// Package telemetry tells OpenTelemetry what a participant does: metrics and traces, under the names of the semantic
// conventions for messaging where those have one (v1.43.0, in development), under "troupe." where not. It needs the
// API only; which SDK and exporters stand behind it, the program says.
//
//	t, err := telemetry.New(telemetry.Config{})
//	p, err := participant.New(t.Instrument(participant.Config{…}))
//	err = t.Observe(p)
//
// # Traces
//
//	place order ──► outbox.Write ──► relay ──► topic ──► process order.payment.commands ──► outcome ──► …
//	(the service's own span)                              (consumer; attempt 1, 2, …)
//
// What is written to the outbox takes along where its writer is in a trace, in the headers traceparent and tracestate,
// which relay, topic, troupe.held and dead letters keep: a service gives Trace to its outbox.Config, Instrument does so
// for handlers. Each run of a handler is a span of kind consumer, whose parent is what wrote the message; what the
// handler emits has that span, or one that it began itself, as its parent. So a flow is one trace from its first Write
// on, through retries and redrives. Where a message brings no context, the span begins a trace.
//
// A span covers a run to the end of its transaction, when the message runs alone. Of a batch each span covers the
// handler, and links to one more span, of the transaction, which begins a trace and links to what wrote each message.
//
// # Metrics
//
// Attributes are topics, partitions, handlers, classes and names of dependencies, of which there are few: never a key or
// an id. Counters count from the process's start. Stats says more of what the gauges mean.
//
//	messaging.client.consumed.messages   counter    messages that were fetched, by partition
//	messaging.process.duration           histogram  s, runs of handlers, by handler and error.type
//	troupe.messages.ended                counter    messages by how they ended (troupe.end), see below
//	troupe.attempts.failed               counter    attempts by handler and error.type: the class
//	troupe.attempts                      histogram  attempts of each message that took effect or is a dead letter
//	troupe.transaction.duration          histogram  s, by topic and whether it was committed
//	troupe.transaction.messages          histogram  messages in a transaction, likewise
//	troupe.breaker.opened                counter    by partition and dependency
//	troupe.deadlines.fired               counter    deadlines that became messages
//	troupe.deadlines.lateness            histogram  s after they were due, of the longest of those that fired together
//	troupe.breaker.open                  gauge      1 while a partition waits for a dependency, else 0
//	troupe.lag, troupe.lag.age           gauges     messages, and s since the oldest was written, by partition
//	troupe.running, troupe.waiting       gauges     messages here, by partition
//	troupe.held                          gauge      keys that wait for a retry, by partition
//	troupe.later                         gauge      messages of a retry topic that are not due, by partition
//	troupe.paused, troupe.careful        gauges     1 or 0; messages still to run behind marks, by partition
//	troupe.ready                         gauge      1 or 0
//
// Every message that is fetched ends, as troupe.end says: success, failure (a refusal), handled (an event), exhausted (a
// dead letter), held, redelivered, duplicate, unhandled, elsewhere (redriven for another group), later (it went to a retry topic, from where it comes again). One
// that was held ends once more, with troupe.from "held", as one of these or as cancelled. So over a time without rebalances
//
//	consumed = ended{from=topic} + waiting + running + later
//	ended{from=topic, end=held} = ended{from=held} + rows in troupe.held (less what a person has released)
package telemetry
