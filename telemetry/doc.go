// Package telemetry reports to OpenTelemetry: the metrics and traces of participants, the expectations of package flow, and spans for
// the rows that an embedded relay publishes. Names are from the semantic conventions for messaging where these have one
// (v1.43.0, in development), and begin with "troupe." where not. The package needs the API only; the program chooses the SDK and the
// exporters.
//
//	t, err := telemetry.New(telemetry.Config{})
//	p, err := participant.New(t.Instrument(participant.Config{…}))
//	err = t.Observe(p)
//	err = t.ObserveFlow(service)
//	r, err := relay.New(relay.Config{Hooks: relay.Hooks{Traced: t.RowPublished}, …})
//
// Package telemetry/sagas does the same for coordinators.
//
// # Traces
//
//	place order ──► outbox.Write ──► relay ──► topic ──► process order.payment.commands ──► outcome ──► …
//	(the service's own span)                              (consumer; attempt 1, 2, …)
//
// A row of the outbox carries the trace context of its writer, in the headers traceparent and tracestate, which relay, topic,
// troupe.held and dead letters keep: a service sets outbox.Config.Trace to Trace, Instrument does so for handlers. Each run of a
// handler is a span of kind consumer, whose parent is the span that wrote the message; messages that the handler emits have that
// span, or one that it began itself, as their parent. So a flow is one trace from its first Write on, through retries and
// redrives. For a message without a context, the span begins a trace.
//
// If the message runs alone, a span covers the run to the end of its transaction. In a batch each span covers the handler, and
// links to one more span, of the transaction, which begins a trace and links to the span that wrote each message.
//
// RowPublished adds the relay's part to these traces. A row has two spans if its headers contain a sampled trace context; both are
// children of the writer's span:
//
//	outbox <topic>   internal   from the row's created_at until the relay sends it: the time in the outbox, failed tries included
//	send <topic>     producer   until the broker has acknowledged it, or its Kafka transaction is committed: the time in the broker
//
// A row that an operator retries has the trace of its writer. A replay makes no spans. No span has a key, a payload or a header as
// an attribute.
//
// # Metrics
//
// Attributes are topics, partitions, handlers, classes and names of dependencies, of which there are few: never a key or an id.
// Counters count from the process's start. The gauges are documented at participant's Stats.
//
//	messaging.client.consumed.messages   counter    messages that were fetched, by partition
//	messaging.process.duration           histogram  s, runs of handlers, by handler and error.type
//	troupe.messages.ended                counter    messages by how they ended (troupe.result), see below
//	troupe.attempts.failed               counter    attempts by handler and error.type: the class
//	troupe.attempts                      histogram  attempts of each message that took effect or is a dead letter
//	troupe.transaction.duration          histogram  s, by topic and whether it was committed
//	troupe.transaction.messages          histogram  messages in a transaction, likewise
//	troupe.breaker.opened                counter    by partition and dependency
//	troupe.deadlines.fired               counter    deadlines that became messages
//	troupe.deadlines.lateness            histogram  s after they were due, the longest of the deadlines that fired together
//	troupe.breaker.open                  gauge      1 while a partition waits for a dependency, else 0
//	troupe.lag, troupe.lag.age           gauges     messages, and s since the oldest was written, by partition
//	troupe.inflight, troupe.queue.depth  gauges     messages here, by partition
//	troupe.limited                       gauge      keys that wait for a rate or concurrency limit, by partition
//	troupe.keys.held                     gauge      keys that wait for a retry, by partition
//	troupe.stranded                      gauge      stored messages that no member handles, by topic, of the whole group
//	troupe.retry_topic.buffered          gauge      messages of a retry topic that are not due, by partition
//	troupe.paused                        gauge      1 while nothing is fetched, else 0, by partition
//	troupe.quarantined                   gauge      messages still to run in quarantine after a crash, by partition
//	troupe.ready                         gauge      1 or 0
//	troupe.expectation.open              gauge      expectations by name and status: waiting, or missing since their time is over
//	troupe.expectation.late              gauge      expectations whose event came after its time, within flow.Config.Retention
//	troupe.expectation.overdue.age       gauge      s since the longest overdue expectation was due; 0 if none is overdue
//	troupe.expectation.alerts            gauge      alerts that the receiver has not accepted yet
//
// Every message that is fetched ends, as troupe.result shows: success, failure (a refusal), handled (an event), exhausted (a dead
// letter), held, redelivered, duplicate, unhandled, elsewhere (redriven for another group), later (it was sent to a retry topic,
// and is read again from there). A held message ends once more, with troupe.source "held", as one of these or as cancelled. So over
// a time without rebalances
//
//	consumed = ended{source=topic} + queue.depth + inflight + retry_topic.buffered
//	ended{source=topic, result=held} = ended{source=held} + rows in troupe.held (less the rows that an operator has made dead letters)
package telemetry
