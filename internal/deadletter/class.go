package deadletter

// The classes of failures, as package participant exports them. A new class belongs into both lists.
const (
	Transient   = "transient"
	RateLimited = "rate_limited"
	Permanent   = "permanent"
	Poison      = "poison"
	Panic       = "panic"
	Timeout     = "timeout"
)

// Classes lists all classes. Programs and pages that filter by class take them from here.
var Classes = []string{Transient, RateLimited, Permanent, Poison, Panic, Timeout}
