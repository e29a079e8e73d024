// Package erasure erases the data of a person that Troupe has stored under a key, in one database.
//
// Troupe's tables hold work and records. Work is a message or a saga that has not ended. It is in the way: an erasure is refused, and
// changes nothing, while there is work of the key, since without its data the work could not end. Records of finished work are deleted if
// nothing depends on them. Else they are blanked: the columns with data are emptied, and the identity stays, so that a message that
// Kafka delivers again, or a start that is repeated, still has no second effect.
//
//	failure                                effect
//	killed at any time                     an erasure is one transaction: nothing or all of it was done
//	a row changes meanwhile                the erasure fails without a change: repeat it
//	a message of the key comes later       its data is stored again: repeat the erasure
//	the database is restored or set back   the data is there again: repeat the erasure
//
// The list of all tables is in tables.go. docs/erasure.md has the places that an erasure cannot reach.
package erasure
