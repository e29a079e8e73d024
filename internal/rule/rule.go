// Package rule holds the rules of the verifiers: the requirements on definitions of sagas and on flows.
package rule

// Severity is the severity of a finding.
type Severity string

// An Error goes wrong when its case occurs. A Warning is legal, and should be a deliberate decision.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// A Rule is a requirement of a verifier.
type Rule struct {
	// ID identifies the rule. It does not change.
	ID string
	// Severity is the severity of its findings. Some findings of an Error rule of sagas are Warnings.
	Severity Severity
	// Title names the mistake, in a few words.
	Title string
	// Reason is the consequence of the mistake at run time.
	Reason string
}

// NewError returns a Rule of severity Error.
func NewError(id, title, reason string) Rule { return Rule{id, Error, title, reason} }

// NewWarning returns a Rule of severity Warning.
func NewWarning(id, title, reason string) Rule { return Rule{id, Warning, title, reason} }

// A List holds the rules of one verifier, in the order of its documentation.
type List []Rule

// Of returns the rule with an ID. It panics if there is none.
func (l List) Of(id string) Rule {
	for _, r := range l {
		if r.ID == id {
			return r
		}
	}
	panic("rule: no rule " + id)
}
