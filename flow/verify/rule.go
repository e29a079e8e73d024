package verify

// A Rule is what a flow must keep.
type Rule struct {
	// ID is stable.
	ID string
	// Severity is that of its findings.
	Severity Severity
	// Title is what is wrong, in a few words.
	Title string
	// Reason is what happens at run time when it is broken.
	Reason string
}

// Rules are all of them, in the order in which they are told.
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
	{"reactions", Error, "a file that does not say what a service does",
		"What cannot be read, names a field that there is not, or contradicts itself cannot be held against the others."},
	{"same-hop", Error, "two files speak for one hop",
		"Each retries, joins and undoes by its own rules, and neither knows of the other: there is one owner of what a hop does."},
	{"too-many-cases", Warning, "not every run was looked at",
		"Outcomes can be combined in more ways than are looked at. What was found holds, but more may be wrong."},

	{"nobody-consumes", Error, "a message that nobody reacts to",
		"The flow stops there, and nobody knows. Where that is meant, the sender says so with last."},
	{"nobody-feeds", Error, "something waits for a message that nobody sends",
		"It never happens. Often the type is misspelt, or it stands on another topic."},
	{"nobody-compensates", Error, "a failure that nobody hears of",
		"A service refuses, and what the others did before stays done: the order is paid for and never shipped."},
	{"missing-undo", Error, "something stays done when the flow goes back",
		"A later or parallel part fails, the flow goes back, and no reaction that undoes this is reached."},

	{"endless-cycle", Error, "a cycle without an end",
		"Every outcome of some service sends the flow round again: no flow that comes there ever ends."},
	{"cycle", Warning, "a cycle that nothing bounds",
		"The flow may leave it at each round, and nothing says that it ever does. Count the rounds in what is sent, and fail at last."},
	{"retry-owners", Error, "one edge has two owners of retries",
		"The participant tries a message again and again before it gives up, and then the flow sends the message once more: tries " +
			"multiply, and nobody can say how often something is tried."},

	{"join-never", Error, "a join that can never be complete",
		"A part is sent by nobody, or only in runs in which another part is not. What is behind the join never happens."},
	{"join-stuck", Error, "a join that may wait for ever",
		"Some parts have come, another will not, and neither a time nor a failure ends it: its row stays, and so does the flow."},
	{"expectation-never", Error, "an expectation that is never met",
		"Whenever its time begins, none of what it expects can come: it cries wolf every time, or waits for a type that is misspelt."},
}
