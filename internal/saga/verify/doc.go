// Package verify checks a saga's definition before it runs. It finds mistakes that have an effect in some case only, and reports
// them with that case.
//
// A definition is checked in every case that its conditions can distinguish: below, at and above each value that they compare a
// variable with. For each case verify computes the steps that begin, and for each step which steps are certainly done before it
// and which may be running at the same time. While no step fails, these are all ways forward; once a step has failed, no other
// step begins, so verify checks each failure against everything that may be done by then. Up to 8,192 cases nothing is sampled.
// If there are more, the rule too-many-cases reports how many were checked.
//
// # Assumptions
//
// A step that is declared retriable succeeds in the end. The reason in irreversible is a good one. A condition that is more than
// comparisons, such as data.name.startsWith('x'), may hold or not, independently of all others. An expression that reads a
// variable which is set only if another condition holds must test it with has().
//
//	result                              meaning
//	an error                            the saga goes wrong when this case occurs: do not run the definition
//	a warning                           legal, but seldom intended: decide it
//	a text that is no definition        reported by the rule "definition", with lines
//	more cases than are checked         a warning; findings are true, but their absence proves nothing
//
// # Not checked
//
// How the engine treats duplicates, crashes and late messages: this is the same for all definitions, and package explore searches
// it. And the handlers of the participants.
package verify
