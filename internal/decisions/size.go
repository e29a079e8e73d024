package decisions

import "fmt"

// maxDecided limits what the transaction of several sagas decides and writes, in bytes. A producer chooses how many sagas the messages of a batch are
// for, or how many sagas have one value. Each of them may send megabytes, use a stashed event of megabytes, or get a copy of an event.
// Work.End counts the messages again as they are written: JSON writes some characters as six bytes.
const maxDecided = 128 << 20

// checkSize returns an error about message if the transaction is for several sagas and exceeds maxDecided. There is no limit for one saga here, so
// that each saga can be decided on alone.
func (p *pass) checkSize(message int, several bool) error {
	if p.size <= maxDecided || !several {
		return nil
	}
	return at(message, fmt.Errorf("the decisions of this transaction have more than %d MiB of events and commands", maxDecided>>20))
}
