package verify

import "github.com/troupe-go/troupe/internal/rule"

// Rules returns all rules, in the order of the documentation.
func Rules() rule.List { return rules }

var rules = rule.List{
	rule.NewError("definition", "an invalid definition",
		"A definition that cannot be read, refers to a missing name, or compares text with a number cannot run."),
	rule.NewWarning("too-many-cases", "not every case was examined",
		"The conditions have more combinations than the verifier examines. The findings hold, but there may be more. "+
			"Conditions over fewer variables, or two sagas instead of one, are also easier to read."),

	rule.NewError("unreachable-step", "a step that never begins",
		"Its condition is false for all values of the variables. The saga completes without the step, and without notice."),
	rule.NewError("join-never", "a join that never completes",
		"It needs several steps, and whenever one of them runs another one is skipped. So the join is always skipped, "+
			"with all steps after it. Or so many steps as its quorum requires are never done."),
	rule.NewError("join-incomplete", "a join that is skipped in some cases",
		"In some case one of its steps is skipped and another one runs. Then the join is skipped, with all steps after "+
			"it, and the saga completes as if nothing were missing. It is a warning if only the failure of optional steps leads there."),
	rule.NewWarning("first-goes-on", "a join continues while other branches still act",
		"The first branch decides, and the commands of the others still take effect: two carriers are booked. Let the "+
			"branches only wait for events, or cancel the other branches in a later step."),
	rule.NewError("guard-gap", "a case without a branch",
		"Each branch has a condition, and in some case none is true: the steps after it are skipped, and the saga "+
			"completes with work missing. For a command's answers, such an answer parks the saga."),
	rule.NewWarning("date-order", "dates compared as texts out of their order",
		"Texts are compared letter by letter from the left, so that '10.1.2026' is before '9.12.2025'. Dates with the year first, and two digits for "+
			"month and day, are in order."),
	rule.NewWarning("guard-boundary", "two conditions disagree at a boundary",
		"Two conditions that exclude each other below and above a value are both true, or both false, at the value "+
			"itself. The typical mistake is < 10000 in one place and > 10000 in the other."),

	rule.NewWarning("no-timeout", "a step that may wait for ever",
		"Neither the step nor the saga has a time-out. If the answer never arrives, the saga waits for ever, without "+
			"notice."),
	rule.NewError("no-way-back", "an effect that no compensation undoes",
		"If a later or parallel step fails, a time-out passes, or a cancel comes, the completed steps are compensated. This step has no "+
			"compensation, and no reason why it needs none. The order is cancelled, and its stock is reserved for ever."),
	rule.NewWarning("list-too-short", "an element that a list may not have",
		"An expression reads an element, with a fixed index, from the variable of a step with forEach. The variable has as many elements "+
			"as the list of the step, which may be shorter or empty. Then the expression cannot be evaluated, and the saga is parked."),
	rule.NewError("pivot-twice", "two pivots in one run",
		"After the first pivot the saga cannot compensate, and the second pivot can still be refused: then the saga can "+
			"neither continue nor compensate."),
	rule.NewError("pivot-parallel", "a step parallel to the pivot may fail",
		"The pivot may complete before or after the other step fails. Whether the saga can still compensate is a race."),
	rule.NewError("fallible-after-pivot", "a step after the pivot may fail",
		"After the pivot the saga cannot compensate: a failure there always parks it."),
	rule.NewError("compensable-after-pivot", "a compensation that never runs",
		"A required step after the pivot is never compensated, so this compensation has no effect."),
	rule.NewWarning("pivot-skipped", "a condition skips the pivot",
		"In some case a condition skips the pivot, and the saga completes: the steps before the pivot stay done, or nothing was done, and the "+
			"purpose of the saga is not reached. State the case by an end, which completes or compensates the saga."),
	rule.NewWarning("back-after-pivot", "a compensation is requested after the pivot",
		"An end, a deadline or a command that is given up compensates, and may do so after the pivot: then it parks the saga."),

	rule.NewWarning("no-failure-answer", "a command without a failure event",
		"It declares no failure event, and is not marked retriable. A refusal still makes the saga compensate, with a "+
			"reason that contains only the event's name."),
	rule.NewWarning("retriable-refused", "a retriable step that declares a failure",
		"Retriable promises that the command is never refused for a business reason, and a declared failure contradicts "+
			"it. The rules about pivots rely on the promise."),
	rule.NewError("shadowed-answer", "an answer that is never taken",
		"The first answer to an event whose condition holds is taken. An answer after one without a condition is never "+
			"taken."),
	rule.NewError("start-awaited", "a step awaits the event that starts the saga",
		"An event either starts an instance or is delivered to one. The step never receives the event that started its "+
			"saga. It is a warning if the event answers a command of the saga: then each saga may start another one."),
	rule.NewWarning("event-expected-twice", "two steps expect the same event",
		"An answer to a command is taken by its step only, and a step that awaits the same event waits for another one. Of two "+
			"steps that wait at the same time, one event completes both, such as the approvals of two people; of two that wait one "+
			"after the other, the second waits for a second event."),

	rule.NewError("unset-variable", "an expression reads a variable that may not be set",
		"An expression that reads a variable without a value fails, and the saga is parked: for example in the "+
			"compensation of a step that succeeded."),
	rule.NewError("compensation-unset", "a compensation reads an answer that may not have arrived",
		"A step in doubt (its time-out passed, or its hop gave up) is compensated without its own outputs. An expression "+
			"that reads them fails, and the saga is parked during its compensation. It is a warning if only a hop that gives "+
			"up leads there."),

	rule.NewError("timeout-below-retries", "a time-out shorter than the allowed retries",
		"The hop still retries when the saga gives up, and a step that would have succeeded is in doubt. A time-out must "+
			"be at least attempts × try + all waits between them."),
	rule.NewError("saga-timeout-below-steps", "the saga's time-out is shorter than its steps'",
		"Every step meets its own time-out, and the saga still compensates."),

	rule.NewError("deadline-never", "a deadline that never occurs",
		"It counts from a step that never begins, or the saga's own time-out always passes first."),
	rule.NewWarning("deadline-skipped", "a deadline that is not scheduled in some cases",
		"It counts from a step that is skipped in some case; then there is no reminder."),
	rule.NewError("deadline-not-cancelled", "a deadline that is never cancelled",
		"The steps that should cancel it never begin, or are completed before it is scheduled."),
	rule.NewError("deadline-field", "a deadline's event reads a field that its payload lacks",
		"It is scheduled with some fields and handled with others: when it is due the saga is parked."),

	rule.NewError("key-clash", "a step and its compensation have the same hop and type",
		"A handler or a log that uses hop and type takes the compensation for a repeated command, and does nothing."),
	rule.NewError("compensation-elsewhere", "a step in doubt is compensated by another hop",
		"Only the hop that received the command knows whether it took effect, and can refuse it if it arrives after its "+
			"compensation. Another hop undoes an effect that may not exist, or may still be made."),
	rule.NewError("compensated-compensation", "a compensation has a compensation",
		"A step sends the compensation of another step, and has a compensation itself: when the saga compensates, it "+
			"makes the effect again that it should undo."),
	rule.NewWarning("retry-owners", "two retry policies for one command",
		"The same command to the same hop has different retry policies in different steps: the number of its attempts is "+
			"unknown."),
	rule.NewWarning("nothing-to-retry", "a retry policy without a command",
		"A step that only waits sends nothing that a hop could retry or give up."),
	rule.NewError("no-consumer", "a command without a consumer",
		"It remains in its topic, and the saga waits until its time-out."),
	rule.NewError("no-producer", "an event that no service sends",
		"A step that awaits it waits until its time-out, and a saga that it should start never starts."),

	rule.NewError("message-field", "an expression does not fit the schema of its message",
		"It names a field that the message does not have, or takes a text for a number. A typo in an event's field parks each saga, or, in has(), "+
			"chooses the wrong branch; a command that its schema does not allow is never sent. The rule needs the schemas: --schemas."),
	rule.NewWarning("message-null", "an expression fails for a field without a value",
		"A field that is null or missing cannot be read inside, and gives no value for a variable of type string, int, double or bool: the saga is parked. "+
			"The rule needs the schemas: --schemas."),
	rule.NewError("personal-field", "an expression reads a personal field",
		"A saga sees the encrypted text of a field that its schema marks as personal, and not the value. So a condition, a key or a computed "+
			"value of it is wrong without an error, and in a field of another kind no service can decrypt it. Only copy it to a field of the same "+
			"kind, or compare it with ''. The rule needs the schemas: --schemas."),

	rule.NewError("end-under-way", "the saga may end while a command runs",
		"It completes while a hop still works, and no step takes the answer: the effect of the command remains."),
	rule.NewWarning("end-leaves-done", "the saga may complete early and leave an effect",
		"It ends early as completed, and the effect of a step with a compensation remains. That is right if this end is a "+
			"success."),
	rule.NewError("cancel-never", "a cancel that is never accepted",
		"The step or the pivot before which a cancel is accepted begins as soon as the saga starts, so that every cancel comes too late."),
	rule.NewError("cancel-after-pivot", "a cancel until a step that comes after the pivot",
		"A cancel is refused once a pivot has begun, although the definition names a later step."),
	rule.NewError("ends-alike", "success and cancellation are the same event",
		"Consumers cannot tell whether everything was done or everything was undone."),
	rule.NewError("same-version", "two definitions with one name and version",
		"The definition that an instance runs depends on the order of loading, and “order v3” has two meanings."),
}
