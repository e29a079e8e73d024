// Package decisions decides on events for stored sagas. In one transaction it writes the states, the log, the messages and the
// deadlines. Package coordinator uses it for messages and for Start, Submit and Act; package sagadesk uses it for an operator's
// actions.
//
//	Begin(tx) ─► Messages, Start or Act: load and lock the sagas, saga.Decide ─► End: save, outbox, deadlines ─► commit ─► CallHooks
//
// In a caller's transaction (Within), the hooks are called before the commit, since the caller does not report it.
//
// Store is the contract of the tables. Postgres implements it for production. Memory implements it for tests, and for exploring a
// definition in virtual time. One suite of tests checks both.
package decisions
