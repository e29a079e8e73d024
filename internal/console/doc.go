// Package console is the operator's console: one http.Handler over the databases of the services. It serves pages for people
// and, under the same addresses, JSON for programs (Accept: application/json; /openapi.json describes it).
//
// The console only presents. Every fact comes from the packages that the command line uses (internal/admin/...,
// internal/saga/verify, outbox, internal/flow/watch), and is read for each request: nothing is cached.
// Every action is one of these packages' actions, which records who did it and why in the same transaction.
//
// # Permissions
//
//	        no Config.Token   a token            a token, and Config.Private   Config.Access
//	read    all requests      all requests       signed-in users               users, by role
//	act     none              signed-in users    signed-in users               users, by role
//
// A user signs in with a token: at /sign-in, for a cookie of twelve hours, or as Authorization: Bearer with each request.
// Sessions are in memory: a sign-out ends one, a restart ends all. With Config.Token the user's name is not verified; it is stored in
// the records.
//
// With Access each user has a token, or is named by a proxy, and has a role on each database. The table in pages.go has the role of
// each page and action; askOf compares it before a page is read or an action begins. A user does not see a database without a role
// on it.
//
// # Protection
//
//	requests of other sites    an action is refused by Sec-Fetch-Site or Origin, and, with a cookie, without the form's own field
//	text from messages         is escaped on every page; no script and no style of a page is inline, and the policy allows none
//	a foreign host name        is refused if Config.Hosts is set: another site cannot rebind its name to this console
//	a stolen cookie            ends with the sign-out; with HTTPS it is sent by https only
//	guessing the token         ten wrong ones from an address, then one in six seconds, by either way; the right one waits too
//	large requests             bodies end at 9 MiB, lists at a page, reading at 10 s, acting at 20 s
//	many live pages            8 for a client, 64 without a user, 256 in all; pages with the same facts share one look
//
// # Failures
//
// If a database does not respond, the page shows the error, and the facts of the others. If the brokers do not respond in
// three seconds, the overview shows that, and its other facts. If a page needs one database only, the page shows its error.
//
// An action on many dead letters or sagas continues in this process after the request, until it is done, stopped, or Close is
// called. Its completed part stays; the same action again continues with the rest.
package console
