package verify

import "github.com/troupe-go/troupe/internal/rule"

// Rules returns all rules, in the order of the documentation.
func Rules() rule.List { return rules }

var rules = rule.List{
	rule.NewError("reactions", "a file that is not a valid reactions.json",
		"A file that cannot be read, has an unknown field, or contradicts itself cannot be compared with the other files."),
	rule.NewError("same-hop", "two files for one hop",
		"Each service retries, joins and compensates by its own file, and does not know the other file. One hop needs one "+
			"owner."),
	rule.NewWarning("too-many-cases", "not every run was examined",
		"The outcomes have more combinations than the verifier examines. The findings hold, but there may be more."),

	rule.NewError("no-consumer", "a message without a consumer",
		"No service reacts to it, so the flow stops there without notice. If that is intended, mark the message with "+
			"last."),
	rule.NewError("no-producer", "a reaction to a message that no service sends",
		"It never runs. Often the type is misspelt, or is sent to another topic."),
	rule.NewError("no-failure-consumer", "a failure without a consumer",
		"A service refuses, and the effects of the other services remain: the order is paid and never shipped."),
	rule.NewError("missing-undo", "an effect that no compensation undoes",
		"A later or parallel reaction fails, and no reaction that undoes this effect is reached."),

	rule.NewError("endless-cycle", "a cycle without an exit",
		"Every outcome of some service sends the flow through the cycle again: a flow that enters it never ends."),
	rule.NewWarning("cycle", "a cycle without a limit",
		"The flow may leave the cycle in each round, but nothing makes it leave. Count the rounds in the messages, and "+
			"fail at a limit."),
	rule.NewError("retry-owners", "two retry policies for one message",
		"The participant retries a message until it gives up, and then the flow sends the message again: the attempts "+
			"multiply, and their number is unknown."),

	rule.NewError("join-never", "a join that can never be complete",
		"No service sends one of its parts, or sends it only in runs without another part. Everything after the join "+
			"never happens."),
	rule.NewError("join-stuck", "a join that may wait for ever",
		"Some parts have arrived, another one never will, and neither a time nor a failure ends the join: its row "+
			"remains, and the flow never ends."),
	rule.NewError("expectation-never", "an expectation that is never met",
		"None of the expected messages can arrive in any run in which it starts: it raises an alarm every time, or "+
			"expects a misspelt type."),
	rule.NewWarning("expectation-below-join", "an expectation whose time is shorter than a join's",
		"It expects a message that comes only after a join has expired, and its own time ends earlier: it raises an alarm while the flow "+
			"still waits as declared."),
}
