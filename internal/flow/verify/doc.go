// Package verify checks a flow without an orchestrator before it runs. Each service declares only its own reactions (package
// reactions), and their combined behaviour is written nowhere. This package finds mistakes in it: cycles without an end, messages
// without a consumer, failures after which an effect is not undone, joins that wait for ever.
//
// Services are assumed to behave as declared. A start may be sent or not. A reaction takes one of its outcomes and sends all of
// its messages. A join completes, expires or is broken. An expected message arrives in time or does not. The verifier checks
// every combination of these, up to 1,280 for the whole flow. If there are more, it answers each question with only the part of
// the flow that can change the answer, and the rule too-many-cases reports where even that was too much.
//
// # When a flow compensates
//
// A flow compensates after a failure of a reaction, unless all messages that the failure sends are marked last; and after a join
// that expires, likewise. Then the effect of each reaction that came before, or in parallel, must be undone: a reaction of the
// same service names its success event in undoes, and is reached. If a compensation itself fails, an operator must act, and
// nothing more is checked. A message that an expectation raises does not make a flow compensate, since the expected message may
// still arrive.
//
//	result                              meaning
//	an error                            the flow goes wrong when this case occurs: do not deploy it
//	a warning                           legal, but seldom intended: decide it
//	a file that is no declaration       reported by the rule "reactions", with lines; nothing else is checked
//	more runs than are checked          a warning; findings are true, but their absence proves nothing
//
// # Not checked
//
// The handlers; their messages are compared with the declaration at run time. The order in which a message and its compensation
// reach a service: the compensation may arrive first, and its handler must record that. A message that arrives more than twice in
// one run counts as arriving twice.
package verify
