package verify

// A Rule is what a definition must keep.
type Rule struct {
	// ID is stable.
	ID string
	// Severity is that of its findings, unless they say less.
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
	{"definition", Error, "it is no definition",
		"What cannot be read, names what is not there, or compares text with a number cannot be run at all."},
	{"too-many-cases", Warning, "not every case was looked at",
		"The conditions have more combinations than are looked at; what was found holds, but more may be wrong. " +
			"Conditions over fewer variables, or two sagas instead of one, are also easier to read."},

	{"unreachable-step", Error, "a step that never begins",
		"No value of the variables lets its condition hold. The saga completes without it, and nobody notices."},
	{"join-never", Error, "a join that never completes",
		"It needs steps of which one is skipped whenever another is done. So it is skipped always, and all behind it."},
	{"join-incomplete", Error, "a join that some cases skip",
		"In a case one of the steps that it needs is skipped and another done: then it is skipped too, and all behind it, " +
			"and the saga completes as if nothing were missing."},
	{"first-goes-on", Warning, "a join goes on while other branches still act",
		"The first branch decides, and the commands of the others take effect all the same: two carriers are booked. Let the " +
			"branches wait for events only, or cancel what was not first in a later step."},
	{"guard-gap", Error, "a case that no branch takes",
		"Each branch has a condition and in some case none holds: what follows is skipped, and the saga completes with the " +
			"work undone. Of a command's answers, one that none takes parks the saga."},
	{"guard-boundary", Warning, "two conditions disagree at the boundary",
		"Two conditions that exclude each other below and above a value both hold, or both fail, at the value itself: the " +
			"classic is < 10000 in one place and > 10000 in the other."},

	{"no-timeout", Warning, "a step that may wait for ever",
		"Neither it nor the saga has a time-out. If the answer never comes, the saga stays where it is and nobody is told."},
	{"no-way-back", Error, "a step that stays done when the saga goes back",
		"When a later or parallel step fails, or time is up, what was done is undone; this step has no compensation and does " +
			"not say why it needs none. The order is cancelled and its stock reserved for ever."},
	{"pivot-twice", Error, "two pivots in one run",
		"After the first there is no way back, and the second can still be refused: then the saga can go neither way."},
	{"pivot-parallel", Error, "something beside the pivot may fail",
		"The pivot may be done when the other step fails, or the other way round: whether there is a way back is a race."},
	{"fallible-after-pivot", Error, "a step behind the pivot may fail",
		"After the pivot there is no way back: a failure there parks the saga, every time."},
	{"compensable-after-pivot", Error, "a compensation that never runs",
		"Behind the pivot nothing is undone. Who wrote a compensation there expects something else."},
	{"back-after-pivot", Warning, "the way back is asked for when there may be none",
		"An end or a deadline that compensates may come after the pivot: then it parks the saga."},

	{"no-failure-answer", Warning, "a command that nobody may refuse",
		"It says neither how it is refused nor that it is retriable. A refusal still turns the saga round, with a reason that " +
			"only names the event."},
	{"retriable-refused", Warning, "a step that cannot be refused says how it is",
		"Retriable promises that no business refuses it, and a declared failure says that one does. The rules about pivots " +
			"believe the promise."},
	{"shadowed-answer", Error, "an answer that is never taken",
		"Of the answers to an event the first whose condition holds is taken: one behind an answer without a condition never is."},
	{"start-awaited", Error, "the event that starts the saga is also awaited",
		"An event either starts an instance or is given to one. That which started it is never seen by the step."},

	{"unset-variable", Error, "something reads a variable that may not be set",
		"An expression that reads a variable without a value fails, and the saga is parked; the compensation of a step that did " +
			"nothing wrong, for example."},
	{"compensation-unset", Error, "a compensation counts on an answer that may not have come",
		"A step in doubt (its time-out passed, its hop gave up) is compensated without its own outputs being known. An " +
			"expression that reads them then fails, and the saga is parked in the middle of its way back. It is a warning where " +
			"only a hop that gives up leads there."},

	{"timeout-below-retries", Error, "a time-out that legal retries outlast",
		"The hop still tries when the saga gives up, and a step that would have been done is in doubt. A time-out must not be " +
			"below attempts × try + all waits between them."},
	{"saga-timeout-below-steps", Error, "the saga's time is up before its steps'",
		"Every step keeps its own time-out and the saga is turned round all the same."},

	{"deadline-never", Error, "a deadline that is never met",
		"It counts from a step that never begins, or the saga's own time-out always comes first."},
	{"deadline-skipped", Warning, "a deadline that some cases never schedule",
		"It counts from a step that is skipped in some case; then nobody is reminded."},
	{"deadline-not-cancelled", Error, "a deadline that nothing cancels",
		"The steps that should cancel it never begin, or are done before it is scheduled."},
	{"deadline-field", Error, "a deadline's event reads what its payload does not have",
		"It is scheduled with some fields and handled with others: when it is due the saga is parked."},

	{"key-clash", Error, "a step and its compensation look alike",
		"Where hop and type of both are the same, a handler or a log that goes by them takes the compensation for a repeated " +
			"command and does nothing."},
	{"compensation-elsewhere", Error, "a step in doubt is undone by another hop",
		"Only the hop that got the command can tell whether it took effect, and refuse it when it comes after its " +
			"compensation. Another hop undoes what may not have happened, or may still happen."},
	{"compensated-compensation", Error, "a compensation has a compensation",
		"A step sends what undoes another one, and has a compensation itself: the way back then does what it should undo."},
	{"retry-owners", Warning, "one edge has two retry policies",
		"The same command to the same hop is tried differently from place to place: nobody can say how often it is tried."},
	{"nothing-to-retry", Warning, "retries of something that is not sent",
		"A step that only waits has nothing that a hop could try or give up."},
	{"nobody-consumes", Error, "a command that nobody handles",
		"It lies in its topic, and the saga waits until its time-out."},
	{"nobody-feeds", Error, "an event that nobody emits",
		"What waits for it waits until its time-out, and what it should start never starts."},

	{"end-under-way", Error, "the saga may end over a command under way",
		"It completes while a hop still works, and nobody takes the answer: what the command does stays done."},
	{"end-leaves-done", Warning, "the saga may complete and leave something done",
		"It ends early as completed, and a step that has a compensation stays done. That is right where the end is a success."},
	{"ends-alike", Error, "success and cancellation are the same event",
		"Who hears it cannot know whether everything was done or everything undone."},
	{"same-version", Error, "two definitions have one name and version",
		"Which one an instance runs depends on which was loaded last, and people who say “order v3” mean two things."},
}
