// Package actions lists the actions of operators on one database: on dead letters, held messages, rows of the outbox, relays, sagas,
// schedules and rebuilds, and of erasures, from the tables in which each action is recorded in its own transaction. It changes nothing.
package actions
