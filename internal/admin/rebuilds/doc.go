// Package rebuilds plans, starts, lists and cancels rebuilds, in which handlers of events read their topics again: docs/rebuild.md. It
// writes troupe.rebuilds and its tables; the participants of the group run the rebuild.
package rebuilds
