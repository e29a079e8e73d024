// Package flows tells OpenTelemetry what a watcher finds of flows without an orchestrator. It needs the API only; which SDK
// and exporters stand behind it, the program says.
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
//	troupe.watch.behind    gauge    s since all that the brokers had was stored and judged: while it grows nothing is found
//
// Findings are those that watch.Config.Found is told of: of each look at most 100, and of messages that nobody declares one
// for each topic and type. The table says how many there are: troupe watch findings.
package flows
