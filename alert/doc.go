// Package alert tells people that something waits for them: a dead letter, a parked row. It posts to a webhook, once per
// cause, and then counts.
//
// Whoever finds the trouble calls Notify, which never waits and never fails; a goroutine of the Notifier does the rest.
// The package knows nothing of participants and relays: their hooks fill an Incident, as the example shows.
//
//	Notify ──► causes: one entry each, with a count ──► webhook, with retries
//
// # How often
//
// The cause of an incident is its kind, class, place and the fingerprint of its error. The first of a cause is posted at
// once. From then on at most one alert per cause goes out in Config.Every, with the number of incidents since the last
// one, and none while there are none.
//
// # What becomes of a failure
//
//	receiver away, slow, 5xx, 408, 429   tried again by Config.Retry, a Retry-After of up to 5 min honoured; after the
//	                                     last attempt the incidents go back to their cause, which is tried anew later
//	any other status, redirects too      the alert is lost: one line is logged, and Stats.Lost counts its incidents
//	more causes than Config.Causes       the incident is dropped, and the next alert says how many were
//	the process ends                     Close posts what is counted, for at most Config.Drain
//	the process is killed                what was counted and not posted is lost; dead letters and parked rows are in
//	                                     their tables all the same
//
// Every incident that Notify got is in one of Stats' Told, Lost, Dropped and Waiting.
//
// # Secrets
//
// A webhook's URL is a password. Errors and log lines name its host and nothing else; redirects are not followed, and
// what the receiver answers is logged without any part of the URL.
package alert
