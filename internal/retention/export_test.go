package retention

// At sets a function that is called between two steps of r: detaching, detached, noted, dropped. Its error ends the call there.
func (r *Dropper) At(step func(string) error) { r.at = step }
