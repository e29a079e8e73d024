package ambassador

// A Verdict is the meaning of a status for the message that was sent.
type Verdict string

// The verdicts.
const (
	Done    Verdict = "done"    // the service has executed the request
	Refused Verdict = "refused" // the service refuses: not retried
	Again   Verdict = "again"   // not now: retried, with the same Idempotency-Key
	Wrong   Verdict = "wrong"   // no answer to a call, such as a redirect: an operator must act
)

// Meaning returns the verdict for a status; package ambassador uses no other table.
func Meaning(status int) Verdict {
	switch {
	case status >= 200 && status <= 299:
		return Done
	case status == 408 || status == 425 || status == 429 || status >= 500 && status <= 599:
		return Again
	case status >= 400 && status <= 499:
		return Refused
	}
	return Wrong
}
