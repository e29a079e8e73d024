// Package run is the order flow on one machine: it starts everything, posts orders, waits until each has ended, and
// checks that nothing was lost, doubled or left over.
//
//	this process                            processes of their own
//	Postgres, Kafka, registry (or yours)    order, payment, inventory, shipping
//	orders ── POST /orders ───────────────► order service
//	progress ◄── order database             a relay beside each
//	chaos ── SIGKILL ─────────────────────► any of the eight
//	chaos ── proxy: every connection of theirs to Postgres and Kafka passes here, and can be cut
//	chaos ── duplicator: reads the flow's topics and sends records again, unchanged
//
// What a run makes has names of its own, from one id: databases troupe_demo_<id>_<service>, the flow order-<id> with its
// topics and groups. At the end they are removed, also after Ctrl-C, unless they are to be kept. A run that is killed
// leaves no process behind, but on servers of others its databases and topics. Schemas stay in a registry of others: they are
// the same for every run, and messages of somebody else may name their ids.
//
// The checks read the four databases, and the topics from their beginning, after every process has ended. Each compares
// what must be with what is; none trusts what a service says of itself.
package run
