package retention

import (
	"context"
	"time"
)

// At sets a function that is called between two steps of r: detaching, detached, noted, dropped. Its error ends the call there.
func (r *Dropper) At(step func(string) error) { r.at = step }

// Limit limits each transaction of r.
func (r *Records) Limit(d time.Duration) { r.limit = d }

// DoNotPause makes passes of r continue at once after each batch.
func (r *Records) DoNotPause() { r.pause = func(context.Context, time.Duration) error { return nil } }
