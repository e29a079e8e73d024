// Package verify proves a saga's definition before it runs: it finds what goes wrong in some case, with the case, so that
// nobody has to meet it first.
//
// A definition is looked at in every case that its conditions can tell apart: below, at and above each value that they
// compare a variable with. In each case the steps that begin are known, and for each step what is done before it for sure,
// and what may be under way beside it. As far as no step fails, that is every way forward; once one has failed no other
// begins, so that each failure is looked at beside all that may be done by then. Nothing is sampled, up to 8192 cases: where
// there are more, the rule too-many-cases says how many were looked at.
//
// # What it takes on trust
//
// That a step which is retriable succeeds at last; that a reason in irreversible is a good one; that a condition which is
// more than comparisons, such as data.name.startsWith('x'), may hold or not, whatever others do. Expressions that read
// variables which are set only where another condition holds must ask for them with has().
//
//	what                                what becomes of it
//	an error                            something goes wrong when its case comes: do not run it
//	a warning                           legal, and seldom meant: a person should have decided
//	a text that is no definition        the rule "definition", with lines
//	more cases than are looked at       a warning; findings hold, that there are none does not
//
// # Not proved
//
// What the engine makes of duplicates, crashes and late messages: that is the same for all definitions, and package explore
// searches it. What participants do with commands.
package verify
