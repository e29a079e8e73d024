// Package mapping makes messages of the rows of an outbox table that is not Troupe's own. It accepts the options of
// Debezium's EventRouter, by their names and with their defaults, so that no table has to change when you move from it.
//
// It is pure: no database, no broker. A source binds the Mapping to the columns that it reads, once per Relation message of
// the stream or once per query, and then passes each row as the server sent it, text or binary.
//
//	Config → New → Mapping → Bind(columns) → Table → Message(values)
//
// A column's value on the wire:
//
//	column                 key, payload      header, JSON               JSON is
//	text, varchar, enum    its text          its text                   a string
//	json, jsonb            its text          its text                   a string; the expanded payload is itself
//	uuid, numeric, others  Postgres's text   Postgres's text            a string: a numeric loses no digit
//	boolean                true, false       the same                   true, false
//	integers, floats       Postgres's text   Postgres's text            a number; NaN and infinities strings
//	bytea                  its bytes         base64                     a string
//	timestamp, time        epoch or midnight in ms up to precision 3, else µs, as Debezium's adaptive mode; a number
//	timestamptz            2019-03-24T20:52:59.000000Z                  a string
//	date                   days since 1970   the same                   a number
//
// Failures:
//
//	an option that is unknown, contradictory or invalid    New and FromOptions fail, naming it
//	a regular expression that only Java understands        New fails
//	a column that is missing, or of a type that does not   Bind fails, naming all of them; nothing is lost, and the
//	fit its option                                         source stops until table or options are corrected
//	a row without id or topic, a negative partition, a     Message fails with ErrRow: this row can never be published as
//	value that cannot be read                              it is. The known parts of the message are returned
//	a payload that should be expanded and is not JSON      is sent unchanged
//	a trace context that is invalid                        is left out
//
// Order is kept per key, as in Troupe's own table. If a table has no column xid xid8 DEFAULT pg_current_xact_id(), then after
// its slot is lost the relay does not know which rows are published, and publishes all. Without an integer column that grows
// with the inserts, or a timestamp, it then reads them in no order.
//
// An event id is never generated: no generated id would be the same when the row is read a second time, from the table or
// from the log. So a row without an id cannot be published. Rows that are equal in all columns are one message, whichever
// column is the id.
//
// A Row is stored outside its table, and can be made a message later.
//
// FromConnector reads the JSON of a Debezium connector and reports the options that have no equivalent.
package mapping
