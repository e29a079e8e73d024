// Package sidecar is the program outbox-relay: its commands, its settings and its admin endpoints. It is a package so
// that other programs of this module can run the very same relay in a process of theirs.
//
//	run          publish the outbox until stopped
//	migrate      bring the database to the latest version
//	status       who leads, and what waits
//	check        what would go wrong, and what to do about it
//	healthcheck  ask a running relay whether it is ready, for containers without a shell
//
// A setting comes from a flag, else from the environment, else from the file of --config, else it has its default. A
// key in the file that nobody knows is refused. DATABASE_URL and KAFKA_BROKERS alone are enough; every other variable
// is OUTBOX_RELAY_ and the flag's name in capitals.
//
// Exit status: 0 done, 1 failed, 2 wrong usage or settings, in which case nothing was started.
//
// The admin endpoints, on loopback unless told otherwise: /livez (the process answers), /readyz (the relay gets
// somewhere, or stands by; else 503 with the reason), /status (JSON), /metrics (Prometheus, see metrics).
//
// The password in DATABASE_URL is never printed: not in logs, not in errors, not in help.
package sidecar
