package relay

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Reading sets the time limit for reading the checkpoint. Call it before Run.
func (r *Relay) Reading(d time.Duration) { r.reading = d }

// StoreTimeout sets the time after which a checkpoint without an answer counts as not stored. Call it before Run.
func (r *Relay) StoreTimeout(d time.Duration) { r.storeTimeout = d }

// Silence sets for how long the server may send nothing before the relay checks whether it still streams, and the time limit
// of that check. Call it before Run.
func (r *Relay) Silence(silence, answer time.Duration) { r.silence, r.answer = silence, answer }

// Patience sets the least time after which records are given up that no broker takes. Call it before Run.
func (r *Relay) Patience(d time.Duration) { r.patience = d }

// Holding sets the longest time for which a checkpoint is not confirmed since a standby lacks it. Call it before Run.
func (r *Relay) Holding(d time.Duration) { r.holding = d }

// OldAge sets the number of transactions after which a poll removes a row that a stream has published. Call it before Run.
func (r *Relay) OldAge(transactions int64) { r.oldTransactions = transactions }

// Keeps sets the number of bytes of a failed row of a mapped table above which its long values are not kept. Call it before Run.
func (r *Relay) Keeps(bytes int) { r.mapped.maxKept = bytes }

// ClosePool closes a pool in the same way as the relay closes its own.
var ClosePool = closePool

// Client returns a client with the options of the relay's own.
func (r *Relay) Client() (*kgo.Client, error) { return r.newClient() }

// ErrNothingPublished is the error of a replay of a table without published rows.
var ErrNothingPublished = errNothingPublished
