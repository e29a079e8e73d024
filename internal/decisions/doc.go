// Package decisions decides on events for stored sagas, and writes what follows in one transaction: the states, the log, the
// messages and the deadlines. Package coordinator uses it for messages and for calls, package sagadesk for an operator's
// actions.
//
//	Begin(tx) ─► Messages, Start or Act: load, guard, saga.Decide ─► End: save, outbox, deadlines ─► commit ─► Told
//
// Store is the contract of the tables. Postgres is the implementation for production; Memory is the one for tests and for
// exploring a definition, in virtual time. Package storetest checks both with one suite.
package decisions
