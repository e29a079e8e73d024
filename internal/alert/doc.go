// Package alert notifies people of events that need an operator: a dead letter, a parked row. It posts to a webhook, once per
// cause, and then counts.
//
// Code that detects such an event calls Notify, which never blocks and never fails; a goroutine of the Notifier does the rest.
// The package does not depend on participants and relays: their hooks fill an Incident, as the example shows.
//
//	Notify ──► causes: one entry each, with a count ──► webhook, with retries
//
// # How often
//
// The cause of an incident is its kind, class, place and the fingerprint of its error. The first incident of a cause is posted at
// once. After it, at most one alert per cause is posted in Config.Every, with the number of incidents since the last one, and
// none while there are none.
//
// # Failures
//
//	receiver away, slow, 5xx, 408, 429   tried again by Config.Retry, a Retry-After of up to 5 min honoured; after the
//	                                     last attempt the incidents return to their cause, which is posted again later
//	any other status, redirects too      the alert is lost: one line is logged, and Stats.Lost counts its incidents
//	more causes than Config.Causes       the incident is dropped, and the next alert has the number of dropped incidents
//	the process ends                     Close posts the counted incidents, for at most Config.Drain
//	the process is killed                counted incidents that were not posted are lost; dead letters and parked rows are
//	                                     still in their tables
//
// Every incident that Notify got is counted in exactly one of Stats' Told, Lost, Dropped and Waiting.
//
// # Secrets
//
// A webhook's URL is a secret. Errors and log lines contain only its host; redirects are not followed, and the receiver's answer
// is logged without any part of the URL.
package alert
