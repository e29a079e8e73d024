// Package upsert writes rows so that a message which comes again, late or out of order changes nothing that it must not
// change. Each helper is a table described once, usually in a package variable, and one verb for a handler's transaction:
//
//	helper      verb     what it makes true
//	Row         Insert   the row is there, with these values
//	Once        Set      the column has this value, and never gets another
//	Sum         Add      the delta is in the sum, once per operation id
//	Versioned   Update   the row that was read in version n has these values, in version n+1
//	Newest      Put      the row has the values of the newest version seen so far, in whatever order they come
//
// What a verb found, and what it has then done:
//
//	found                               Insert        Set           Add           Update        Put
//	nothing of it yet                   Applied       Applied       Applied       Applied       Applied
//	the very same, done before          Duplicate     Duplicate     Duplicate     Duplicate     Duplicate
//	something newer                     -             -             -             ErrStale      Stale
//	something else in its place         ErrConflict   ErrConflict   ErrConflict   ErrStale      ErrConflict
//	no row to change                    -             ErrMissing    ErrMissing    ErrMissing    -
//
// Only Applied changes anything. A Result may be ignored: whatever it is, what the verb promises is true, and the same
// message deserves the same answer. What must not pass unnoticed is an error:
//
//	ErrConflict   two messages contradict each other: refuse, or return retry.Permanent. Trying again changes nothing
//	ErrStale      the decision was made on data that is no longer there: return it, and the retry reads the row anew
//	ErrMissing    the row is not there yet: return it to try again, or refuse
//	other errors  Postgres says no, or a description or its values do not fit; return them
//
// # The SQL
//
// Every verb is two statements, sent together in one round trip: a write that changes a row or none, and a look at
// what is there. SQL gives their text, and the Examples print it. They are two because under READ COMMITTED a
// statement does not see what others commit while it waits for them: a look in the statement that writes would find
// nothing where a concurrent transaction has just inserted the row. The second statement sees it.
//
// The statements wait for transactions that are changing the same row or inserting the same key, until those end. They
// never fail on a unique key, so the handler's transaction can go on after any Result and after the three errors. There
// are two exceptions: Set, Update and Put change columns, and one that has a unique constraint of its own aborts the
// transaction when another row has its new value; and what the table's CHECKs, foreign keys and types forbid aborts it,
// as ever. After any other error roll back.
//
// Under REPEATABLE READ and SERIALIZABLE a concurrent change is a serialization failure (SQLSTATE 40001) instead: run
// the transaction again. Participants run handlers under READ COMMITTED.
//
// # What is the same
//
// A value is compared with what the column holds, by IS NOT DISTINCT FROM, so null equals null. The column's type needs
// an equality operator (jsonb has one, json has none), and must keep values as they are: a numeric(9,2) that rounds
// 0.125, or a trigger that rewrites it, makes a Duplicate look like a conflict. Columns that are not named are neither
// written nor compared, so defaults such as now() do no harm.
//
// # Not promised
//
// Deleted rows are forgotten: a message that comes again after its row was deleted is applied again. Where a row can be
// deleted while duplicates are on their way, mark it instead. Nothing here remembers a message: that it is handled once
// is the participant's inbox; these verbs make true that it would do no harm twice.
package upsert
