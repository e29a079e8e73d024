// Package ambassador connects a service that speaks only HTTP to a flow: it sends each command as a request, and publishes
// the response as an event. It handles the HTTP steps of sagas (saga.Call).
//
//	troupe.Call ──► participant ──► handler ──────── request ────────► the service
//	                                   │◄──────── status, body ───────────┘
//	                                   └──► troupe.CallDone or troupe.CallRefused, in the handler's transaction
//
// A Route posts the commands of another type and makes an event of the response: see Post. An Outbox takes messages by HTTP
// from a service that has no database. The program troupe ambassador offers both to services in any language.
//
// An Ambassador adds a handler for Call to a participant: order per key, retries, dead letters, time-outs and concurrency are
// the participant's. The function Meaning classifies a status:
//
//	2xx                 Done     success event, with status and body
//	4xx except          Refused  failure event, with status, body and reason; never retried
//	408, 425, 429, 5xx  Again    an error: retried, not before Retry-After, which is limited to 24 h
//	400 with Retry400   Again    for routes only
//	3xx, all others     Wrong    a permanent error: dead letter; an operator must act
//
// # Promised
//
// Effect once in the participant's own database: one answer for a command, however often it comes, and one row for a message
// that is posted to an Outbox, as long as its id is stored.
//
// At least once for the service, with a key that stays the same: every request for a command has the same Idempotency-Key,
// which is the command's or, if it has none, its identity (envelope.Message.Identity), also after a redrive. The service must
// handle requests with one key once, and repeat its response. While it still works on an earlier request with the key it must
// answer 429 or 503, and not 409, which is a refusal: the saga would be compensated while the work goes on.
//
// A request never leaves Config.BaseURL. A path that could lead elsewhere when it is decoded, decoded twice or read by a
// lenient server is not sent; no redirect is followed; and cookies and proxies named by the environment are not used.
//
// # Failures
//
//	failure                             effect
//	the service cannot be reached: no   retry.Unavailable: the partition waits and tries one call from time to time; no
//	address, connection refused, no     attempt is counted and nothing becomes a dead letter, since nothing was sent; Ready
//	TLS, no answer to dialling in 5 s   reports it. All messages of the partition wait: give the ambassador a hop of its own
//	connection lost after that          transient: the service may have done it; sent again with the same key
//	no response in the participant's    time-out: rolled back, then the same
//	Timeout
//	408, 425, 429, 5xx                  transient; only the call's key waits
//	3xx                                 permanent: the error has the target and the setting to change
//	a response larger than MaxBody      2xx: permanent, and the service has executed the request: raise max-answer-kb and redrive. 4xx: refused,
//	                                    without the body
//	path, method or an attribute that   permanent; nothing was sent
//	no request can have
//	a command that is not JSON          poison; nothing was sent
//	crash before the answer's commit    sent again with the same key
//	crash after it                      none: the inbox recognises the command
//	redrive of a dead letter            sent again with the same key
//
// # Not promised
//
// That the service did nothing when a call became a dead letter: only its own data, under the key, show that.
//
// # Concurrency and memory
//
// A call is made within a transaction, which stays open until the response: the participant's Concurrency bounds both, and
// with MaxBody the memory of all responses, however many calls wait. Leave Batch at 1: calls are never batched, and calls
// that were fetched together would run one after the other.
//
// The requests of Routes are made concurrently for a batch, but one after the other for a key: at most Concurrency times
// Batch, each with a response of up to MaxBody. An Outbox reads as many requests at once as it has Writers, and refuses
// others.
package ambassador
