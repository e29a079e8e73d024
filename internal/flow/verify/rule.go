package verify

// A Rule is a requirement on flows.
type Rule struct {
	// ID identifies the rule. It does not change.
	ID string
	// Severity is the severity of its findings.
	Severity Severity
	// Title names the mistake, in a few words.
	Title string
	// Reason is the consequence of the mistake at run time.
	Reason string
}

// Rules returns all rules, in the order of the documentation.
func Rules() []Rule { return append([]Rule(nil), rules...) }

func ruleOf(id string) Rule {
	for _, r := range rules {
		if r.ID == id {
			return r
		}
	}
	panic("verify: no rule " + id)
}

var rules = []Rule{
	{"reactions", Error, "a file that is not a valid reactions.json",
		"A file that cannot be read, has an unknown field, or contradicts itself cannot be compared with the other files."},
	{"same-hop", Error, "two files for one hop",
		"Each service retries, joins and compensates by its own file, and does not know the other file. One hop needs one " +
			"owner."},
	{"too-many-cases", Warning, "not every run was examined",
		"The outcomes have more combinations than the verifier examines. The findings hold, but there may be more."},

	{"no-consumer", Error, "a message without a consumer",
		"No service reacts to it, so the flow stops there without notice. If that is intended, mark the message with " +
			"last."},
	{"no-producer", Error, "a reaction to a message that no service sends",
		"It never runs. Often the type is misspelt, or is sent to another topic."},
	{"no-failure-consumer", Error, "a failure without a consumer",
		"A service refuses, and the effects of the other services remain: the order is paid and never shipped."},
	{"missing-undo", Error, "an effect that no compensation undoes",
		"A later or parallel reaction fails, and no reaction that undoes this effect is reached."},

	{"endless-cycle", Error, "a cycle without an exit",
		"Every outcome of some service sends the flow through the cycle again: a flow that enters it never ends."},
	{"cycle", Warning, "a cycle without a limit",
		"The flow may leave the cycle in each round, but nothing makes it leave. Count the rounds in the messages, and " +
			"fail at a limit."},
	{"retry-owners", Error, "two retry policies for one message",
		"The participant retries a message until it gives up, and then the flow sends the message again: the attempts " +
			"multiply, and their number is unknown."},

	{"join-never", Error, "a join that can never be complete",
		"No service sends one of its parts, or sends it only in runs without another part. Everything after the join " +
			"never happens."},
	{"join-stuck", Error, "a join that may wait for ever",
		"Some parts have arrived, another one never will, and neither a time nor a failure ends the join: its row " +
			"remains, and the flow never ends."},
	{"expectation-never", Error, "an expectation that is never met",
		"None of the expected messages can arrive in any run in which it starts: it raises an alarm every time, or " +
			"expects a misspelt type."},
}
