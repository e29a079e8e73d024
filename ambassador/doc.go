// Package ambassador stands beside a service that speaks only HTTP: messages on one side, requests on the other. The HTTP
// steps of sagas (saga.Call) are its work.
//
//	troupe.Call ──► participant ──► handler ──────── request ────────► the service
//	                                   │◄──────── status, body ───────────┘
//	                                   └──► troupe.CallDone or troupe.CallRefused, in the handler's transaction
//
// Routes are commands of any other type, which the program troupe ambassador posts for services in any language: see Post.
// There an event is made of what the service says, and an Outbox takes messages by HTTP from a service that has no database.
//
// An Ambassador adds a handler for Call to a participant: order per key, retries, dead letters, time-outs and concurrency
// are the participant's. Meaning is the one table of what a status says:
//
//	2xx                 Done     success event, with status and body
//	4xx but for         Refused  failure event, with status, body and reason; never retried
//	408, 425, 429, 5xx  Again    an error: retried, not before Retry-After, of which at most 24 h count
//	400 with Retry400   Again    of routes only
//	3xx, all others     Wrong    a permanent error: dead letter; a person must see to it
//
// # Promised
//
// Effect once towards the participant's own database: one answer for a command, however often it comes, and one entry for a
// message that is posted to an Outbox, as long as its id is remembered.
//
// At least once towards the service, with a key that stays the same: every request for a command has the same
// Idempotency-Key, that of the command or, where it has none, its identity (envelope.Message.Identity), also after a
// redrive. It is the service that must do what comes under a key it knows only once, and answer as before. While it still works on an earlier request of the
// key it must answer 429 or 503, and not 409, which is a refusal: the saga would go back while the work goes on.
//
// A request never leaves Config.BaseURL: a path that could, once decoded, twice decoded or read by a lenient server, is not
// sent, no redirect is followed, and there are no cookies and no proxy that the environment names.
//
// # What becomes of a failure
//
//	failure                             effect
//	the service cannot be reached: no   participant.Unavailable: the partition waits and tries one call from time to time; no
//	address, connection refused, no     attempt is counted and nothing becomes a dead letter, for nothing was sent; Ready says
//	TLS, no answer to dialling in 5 s   so. Each message of the partition waits with it: give the ambassador a hop of its own
//	connection lost after that          transient: the service may have done it; asked again with the same key
//	no answer in the participant's      time-out: rolled back, the same
//	Timeout
//	408, 425, 429, 5xx                  transient; only the call's key waits
//	3xx                                 permanent: says where to, and what to set
//	an answer larger than MaxBody       2xx: permanent, and the service has done it: raise MaxBody and redrive. 4xx: refused,
//	                                    without the body
//	path, method or an attribute that   permanent; nothing was sent
//	no request can have
//	a command that is no JSON           poison; nothing was sent
//	crash before the answer's commit    asked again with the same key
//	crash after it                      nothing: the inbox knows the command
//	redrive of a dead letter            asked again with the same key
//
// # Not promised
//
// That the service did nothing when a call became a dead letter: only its own data, under the key, say so.
//
// # Concurrency and memory
//
// A call is made within a transaction, which is open as long as it takes: the participant's Concurrency bounds both, and
// with MaxBody what answers hold of the memory, however many calls wait. Leave Batch at 1: calls are never batched, and
// those that were fetched together would go one after the other.
//
// The requests of Routes are made at once for a batch, those of a key one after the other: at most Concurrency times Batch,
// each with an answer of MaxBody. An Outbox reads as many requests at once as it has Writers, and refuses the others.
package ambassador
