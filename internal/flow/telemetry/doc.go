// Package flows reports a watcher's findings on choreographed flows to OpenTelemetry. It needs the API only; the program chooses
// the SDK and the exporters.
//
//	m, err := flows.New(flows.Config{})
//	w, err := watch.New(m.Instrument(watch.Config{…}))
//	err = m.Observe(w)
//
// # Metrics
//
// All have the flow's name, troupe.flow; never a key or an id.
//
//	troupe.watch.findings  counter  findings by kind (troupe.watch.kind): missing, late, stuck_join, unexpected; from 0
//	troupe.watch.messages  counter  messages that were stored
//	troupe.watch.behind    gauge    s since all messages of the brokers were stored and evaluated; nothing is found while it grows
//
// Findings are the ones passed to watch.Config.Found: at most 100 of each evaluation, and of undeclared messages one for each
// topic and type. The table has all of them: troupe watch findings.
package flows
