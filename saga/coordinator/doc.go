// Package coordinator runs sagas: it is a participant that decides, by saga.Decide, what follows from what hops answer, and
// writes the decision, its log, the commands and the deadlines in one transaction.
//
//	hop's event ─► load the saga ─► Decide ─► save: state, log, outbox, deadline ─► commit ─► relay ─► next hop
//	                 FOR UPDATE                version compared
//
// Its Store is where sagas are kept. Memory is one for tests, with the whole routing in virtual time.
package coordinator
