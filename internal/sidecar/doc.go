// Package sidecar is the program outbox-relay: its commands, its settings and its admin endpoints. It is a package so
// that other programs of this module can run the very same relay in a process of theirs.
//
//	run          publish the outbox until stopped
//	migrate      bring the database to the latest version
//	status       who leads, and what waits
//	check        what would go wrong, and what to do about it
//	parked       see, retry or discard rows that wait for a person
//	schema       the JSON Schema of the file
//	healthcheck  ask a running relay whether it is ready, for containers without a shell
//
// A setting comes from a flag, else from the environment, else from the file of --config, else it has its default. A
// key in the file that nobody knows is refused. DATABASE_URL and KAFKA_BROKERS alone are enough; every other variable
// is OUTBOX_RELAY_ and the flag's name in capitals. Flags, file, JSON Schema and docs/relay-reference.md are made from one
// table (settings.go), metrics and their documentation from another (metrics.go).
//
// The file may name several outboxes. Each has a relay of its own, and what one does is never another's concern:
//
//	failure                                effect
//	a mistake in any setting, at start     nothing is started: status 2
//	a mistake in any setting, at SIGHUP    nothing changes, the log says why
//	a database is away                     its relay waits; /readyz says which one
//	a pooler in transaction mode           that relay is refused with the reason; with several outboxes it is tried again
//	a relay ends with an error             the only one: status 1; else it is tried again, after 1 s to 1 min
//	a setting of one outbox changed        SIGHUP drains its relay and begins a new one; a standby may be faster
//	a certificate or Kafka password        read for each new connection, from its file
//	  changed on disk
//
// Exit status: 0 done, 1 failed, 2 wrong usage or settings, in which case nothing was started.
//
// The admin endpoints: /livez (the process answers), /readyz (each relay gets somewhere, or stands by; else 503 with the
// reason), /status (JSON), /metrics (Prometheus, see metrics), /parked. Without a token they are on loopback only and
// change nothing. With one there are actions too (pause, resume, replay, retry and discard of parked rows), and all but
// the first two want it.
//
// The program troupe ambassador is here too, since it has the same layers, secrets, TLS and admin endpoints: settings in
// ambassador_settings.go, docs/ambassador-reference.md made from them. It has one hop, no reload and no actions.
//
// Secrets are never printed: not in logs, not in errors, not in help, not in answers.
package sidecar
