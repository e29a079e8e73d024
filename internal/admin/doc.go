// Package admin has the parts that all clients of operators share: the clients for dead letters, outboxes, sagas and watched
// flows, and the command line, the console and the admin port that call them.
//
//	Actor      the operator and the reason that an action records
//	TimeCursor the position where the next page of a list begins
//	Explain    the remedy for an error of Postgres
//	LimitLocks the limit of an action's wait for locked rows
//
// An Actor that cannot be recorded is a FieldError with the field's name. Each caller gives it its own form: the command line
// names the flag and exits with 2, the console and the admin port answer 400.
package admin
