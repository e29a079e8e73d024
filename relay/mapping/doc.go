// Package mapping makes messages of the rows of an outbox table that is not Troupe's own. It speaks the options of
// Debezium's EventRouter, by their names and with their defaults, so that moving from it changes no table.
//
// It is pure: no database, no broker. A source binds the Mapping to the columns that it sees, once per Relation message
// of the stream or once per query, and then hands over each row as the server sent it, text or binary.
//
//	Config → New → Mapping → Bind(columns) → Table → Message(values)
//
// What a column's value is on the wire:
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
// What happens when something is wrong:
//
//	an option that is unknown, contradictory or no value   New and FromOptions fail, naming it
//	a regular expression that only Java understands        New fails
//	a column that is not there, or of a type that cannot   Bind fails, naming all of them; nothing was lost, and the
//	be what it should be                                   source stands until table or options are put right
//	a row without id or topic, a negative partition, a     Message fails with ErrRow: this row can never be published as
//	value that cannot be read                              it is. What of the message is known comes along
//	a payload that should be expanded and is no JSON       is sent as it is
//	a trace context that is none                           is left out
//
// Order is kept per key, as in Troupe's own table. A table without a column xid xid8 DEFAULT pg_current_xact_id() cannot be
// healed exactly after its slot is lost; one without an integer column that grows with the inserts, or a timestamp, not in
// order.
//
// An event id is never made up: a row without one cannot be published, under any name that is stable when the row is read a
// second time, from the table or from the log. Rows that are equal in all columns are one message, whichever column is the id.
//
// A Row is one that is kept apart from its table, to be made a message again later.
//
// FromConnector reads the JSON of a Debezium connector and says what of it has no equivalent.
package mapping
