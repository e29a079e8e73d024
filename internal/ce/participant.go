package ce

// Headers that steer a participant.
const (
	// HeaderRetry sets, on a command, how its sender wants it to be retried, instead of Config.Retry and Config.Immediate of
	// package participant:
	//
	//	attempts=3;initial=500ms;cap=10s;try=10s
	//
	// The participant's own values apply for missing parts. A run may take as long as try, or Config.Timeout if that is
	// shorter. The waits begin after the first failure: no try follows at once. jitter=no makes them exact. A value that breaks
	// the format or its limits is ignored and logged; the command is handled by the participant's own policy.
	HeaderRetry = "__troupe.retry"

	// HeaderDoubt has the value "true" if the sender of a compensation does not know whether the forward call took effect, for
	// instance since its answer did not come in time. Without it the compensation runs even if no forward call is known.
	HeaderDoubt = "__troupe.saga.doubt"

	// HeaderSince has the time, in RFC 3339, when the first call was sent whose result the sender of a saga's command does not
	// know: for a compensation in doubt the forward call, for a command that is sent again the first one. It is not needed if
	// that is the message's own time.
	HeaderSince = "__troupe.saga.since"

	// HeaderFirstKey has the idempotency key of the first call of a saga's step whose result is unknown. The handler gets it as
	// the idempotency key of the command, so that a service outside the database recognises a call whose answer was lost. The
	// sender omits the header if that is the command's own key.
	HeaderFirstKey = "__troupe.saga.firstkey"

	// HeaderObserved names, on an event of a hop, an observer of the hop's group whose OnWrite ran in the transaction that wrote
	// the event: group/name, once for each.
	HeaderObserved = "__troupe.observed"

	// Headers of the message that a deadline becomes. They distinguish it from a command of the same type, and from the
	// deadlines of other groups on the topic, which are skipped.
	HeaderDeadline      = "__troupe.deadline" // group/name
	HeaderDeadlineScope = "__troupe.deadline.scope"
)
