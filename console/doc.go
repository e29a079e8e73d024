// Package console is what an operator looks at: one http.Handler over the databases of the services, for people as pages,
// for programs as JSON under the same addresses (Accept: application/json; /openapi.json says what is in it).
//
// It is a face and no more. Every fact comes from the packages that the command line uses (repair, saga/coordinator,
// timeline, outbox, relay/desk, saga/verify), read when it is asked for: nothing is kept, so nothing is stale. Every action is one of
// theirs, in one transaction with the record of who did it and why.
//
// # Who may do what
//
//	                        no Config.Token   a token             a token, and Config.Private
//	read                    anybody           anybody             who is signed in
//	act                     nobody            who is signed in    who is signed in
//
// Signed in is who has shown the token: to /sign-in, for a cookie of twelve hours, or as Authorization: Bearer with each
// request. Names are what people say of themselves; they stand in the records.
//
// # What a request cannot do
//
//	from another site          an action is refused by Sec-Fetch-Site or Origin, and, with a cookie, without the form's own field
//	text from messages         is escaped where it stands; no script and no style of a page is inline, and the policy allows none
//	a name that is not ours    is refused where Config.Hosts names those that are: pages of others cannot rebind theirs to it
//	guess the token            ten wrong ones from an address, then one in six seconds, by either way; the right one waits, too
//	too much                   bodies end at 9 MiB, lists at a page, a question to a database at 10 s, live pages at 64
//
// # When something is down
//
// A database that does not answer is said to be so, with why, and the others are shown. Brokers that do not answer in three
// seconds are said to, and the rest of the overview stands. Where a page is of one database
// alone its error is the page.
//
// Work on many dead letters goes on in this process, after the request, until it is done, stopped, or Close. What was done
// is done: the same again goes on with the rest.
package console
