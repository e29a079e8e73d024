// Package sagahttp serves the sagas of a coordinator over HTTP: a request starts a saga and waits for its end, up to a time that the
// caller states. If the saga has not ended by then, the response has the address at which the caller can ask again. The program troupe ambassador serves it.
//
//	POST /sagas/{saga}/{key}          starts a saga; the body has its variables, as a JSON object
//	GET  /sagas/{saga}/{key}          returns a saga
//	POST /sagas/{saga}/{key}/cancel   cancels a saga whose definition declares a cancel by an operator; the body has actor and reason
//
// The header Prefer: wait=N (RFC 7240) lets each of them wait up to N seconds, at most 30, until the saga has ended.
// At most 8 requests wait for sagas with more than 32 KiB of variables. The response to another one has no Preference-Applied.
//
//	200  the saga has ended: the body has its status, its reason and its variables
//	202  it has not ended, parked included: ask again at Location
//	400  the request cannot be read       401  the token is missing or wrong
//	404  there is no such type of saga, or no saga of that key
//	409  the key belongs to a saga with other data; or the cancel is refused
//	413  the body is too large            415  not application/json
//	422  the definition does not accept a value
//	429  too many wrong tokens
//	503  busy, starting, or the database cannot be reached: send the request again
//
// # Promised
//
// A request that is repeated, as after a 503 or a lost connection, starts nothing twice: the key identifies the saga. The response
// then has existed: true. If the saga was started with other data, the response is 409 and has none of it.
//
// A cancel that is repeated has the same result: once one was accepted, the response has the saga, with cancel as accepted.
//
// # Not promised
//
// That a saga was started if the response is 503, or that it was not: repeat the request.
package sagahttp
