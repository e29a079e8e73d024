package outbox

// At has step called between two steps of r: detaching, detached, noted, dropped. An error of it ends the call there.
func (r *Retention) At(step func(string) error) { r.at = step }
