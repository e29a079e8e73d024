// Package run runs the order flow on one machine: it starts everything, posts orders, waits until each has ended, and checks that
// no message was lost, applied twice or left over.
//
//	this process                            processes of their own
//	Postgres, Kafka, registry (or yours)    order, payment, inventory, shipping
//	orders ── POST /orders ───────────────► order service
//	progress ◄── order database             a relay for each
//	chaos ── SIGKILL ─────────────────────► any of the eight
//	chaos ── proxy: every connection of theirs to Postgres and Kafka passes here, and can be cut
//	chaos ── duplicator: reads the flow's topics and sends records again, unchanged
//
// A run derives the names of everything that it creates from one id: databases troupe_demo_<id>_<service>, the flow order-<id>
// with its topics and groups. At the end it removes them, also after Ctrl-C, unless they are to be kept. A run that is killed
// leaves no process behind, but on servers that it did not start it leaves its databases and topics. Schemas stay in such a
// registry: they are the same for every run, and messages of other programs may contain their ids.
//
// The checks read the four databases, and the topics from their beginning, after every process has ended. Each compares an
// expected value with the actual one; none relies on a service's own report.
package run
