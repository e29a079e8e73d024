package watch

import "time"

// FindNewest and FindByKey are statements of Find.
var FindNewest, FindByKey = findNewest, findByKey

// StepLimit replaces the time limit of a step. Call it before Run.
func (w *Watcher) StepLimit(limit time.Duration) { w.stepLimit = limit }
