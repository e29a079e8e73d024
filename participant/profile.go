package participant

import "github.com/troupe-go/troupe/internal/deadletter"

// profile returns which headers of other frameworks the copy of a dead letter gets.
func (c Config) profile() (p deadletter.Profile) {
	if c.SpringHeaders {
		p |= deadletter.Spring
	}
	if c.ConnectHeaders {
		p |= deadletter.Connect
	}
	return p
}
