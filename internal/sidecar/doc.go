// Package sidecar is the program outbox-relay: its commands, its settings and its admin endpoints. It is a package so that other
// programs of this module can run the same relay in their own process.
//
//	run          publish the outbox until stopped
//	migrate      bring the database to the latest version
//	status       the active relay, and the rows that wait
//	check        find problems of the configuration, each with its remedy
//	parked       show, retry or discard rows that wait for an operator
//	schema       the JSON Schema of the file
//	healthcheck  ask a running relay whether it is ready, for containers without a shell
//
// The value of a setting is taken from its flag, else from the environment, else from the file of --config, else it is the
// default. An unknown key in the file is refused. DATABASE_URL and KAFKA_BROKERS alone are enough; the name of every other
// variable is OUTBOX_RELAY_ and the flag's name in capitals. Flags, file, JSON Schema and docs/relay-reference.md are made from
// one table (settings.go), metrics and their documentation from another (metrics.go).
//
// The file may name several outboxes. Each has its own relay, and the failure of one does not affect the others:
//
//	failure                                effect
//	an error in any setting, at start      nothing is started: status 2
//	an error in any setting, at SIGHUP     nothing changes, the log has the reason
//	a database is away                     its relay waits; /readyz names the outbox
//	a pooler in transaction mode           its relay is refused with the reason; with several outboxes it is tried again
//	a relay ends with an error             the only one: status 1; else it is tried again, after 1 s to 1 min
//	a setting of one outbox changed        SIGHUP drains its relay and starts a new one; a standby may become active first
//	a certificate, password or token       read for each new connection, from its file
//	  changed on disk
//	a token of an endpoint or a signing    its file is read again with a request, at most once a second
//	  secret changed on disk
//	a command that prints a secret fails   no new connection until it works; the error has its exit status and standard error
//
// Exit status: 0 done, 1 failed, 2 wrong usage or settings, in which case nothing was started.
//
// The admin endpoints are /livez (the process answers), /readyz (each relay makes progress or is a standby; else 503 with the
// reason), /status (JSON), /metrics (Prometheus, see metrics) and /parked. Without a token they listen on loopback only and
// change nothing. With one there are also actions (pause, resume, replay, retry and discard of parked rows), and all endpoints
// except the first two require the token.
//
// The program troupe ambassador is here too, since it has the same configuration sources, secrets, TLS and admin endpoints: its
// settings are in ambassador_settings.go, and docs/ambassador-reference.md is made from them. It has one hop, no reload and no
// actions.
//
// Secrets are never printed: not in logs, errors, help or responses.
package sidecar
