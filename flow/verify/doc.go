// Package verify proves a flow without an orchestrator before it runs. Each service declares its reactions by itself
// (package reactions); what comes of all of them together nobody wrote down, and this is where it is seen: cycles without an
// end, messages nobody hears, failures after which something stays done, joins that wait for ever.
//
// Services run as they declare: a start may be sent or not; a reaction takes one of its outcomes and sends all of its
// messages; a join is completed, out of time or broken; what is expected comes in time or does not. The verifier looks at
// every combination of these, up to 1280 for the whole flow. Where there are more, each question is asked of that part of
// the flow which can change the answer, and the rule too-many-cases says where even that was too much.
//
// # What turns a flow back
//
// A reaction's failure, unless all that it sends then is marked last; and a join that runs out of time, likewise. What a
// reaction did before or beside it must then be undone: a reaction of the same service names its success event in undoes,
// and is reached. Where a compensation itself fails that is for a person, and nothing more is asked. What is raised by an
// expectation turns nothing back, since what was expected may still come.
//
//	what                                what becomes of it
//	an error                            something goes wrong when its case comes: do not deploy it
//	a warning                           legal, and seldom meant: a person should have decided
//	a text that says no reactions       the rule "reactions", with lines; nothing else is looked at
//	more runs than are looked at        a warning; findings hold, that there are none does not
//
// # Not proved
//
// What handlers do; that they send what they declare is checked where they run. The order in which a message and what undoes
// it reach a service: a compensation may come before what it undoes, and its handler must remember that. A message that
// comes more than twice in one run is looked at twice.
package verify
