// Package letterofcredit is an example: two sagas about an application for a letter of credit. approval.saga.json approves
// it automatically where the rules allow it; reminder.saga.json sends a reminder for one without a decision. README.md explains both.
package letterofcredit

import (
	_ "embed" // the definitions

	"github.com/troupe-go/troupe/saga"
)

//go:embed approval.saga.json
var approval []byte

//go:embed reminder.saga.json
var reminder []byte

// Definitions are approval and reminder. They start with the same event and know nothing of each other.
func Definitions() ([]*saga.Definition, error) {
	var all []*saga.Definition
	for _, text := range [][]byte{approval, reminder} {
		d, err := saga.Parse(text)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}
