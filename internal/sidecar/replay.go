package sidecar

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/troupe-go/troupe/relay"
)

// replays holds the replay of one outbox: one runs at a time, and the last one is kept.
type replays struct {
	mu      sync.Mutex
	current *replayJob
}

type replayJob struct {
	cancel context.CancelFunc
	began  chan struct{} // closed when it has begun to read
	ended  chan struct{}

	mu       sync.Mutex
	progress replayProgress
}

// replayProgress is the response of /replay.
type replayProgress struct {
	Running   bool      `json:"running"`
	Begun     time.Time `json:"begun_at"`
	Ended     time.Time `json:"ended_at,omitzero"`
	Lowest    int64     `json:"lowest_position"` // rows below it are gone
	Position  int64     `json:"position"`
	Last      int64     `json:"last_position"`
	Published int64     `json:"published"`
	Note      string    `json:"note,omitempty"`
	Error     string    `json:"error,omitempty"`
}

// replayRequest is the body of POST /replay.
type replayRequest struct {
	From  int64     `json:"from_position,omitempty"`
	To    int64     `json:"to_position,omitempty"`
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	Topic string    `json:"topic,omitempty"`
	Into  string    `json:"into_topic,omitempty"`
	Rate  int       `json:"rows_per_second,omitempty"`
}

func (a *adminHandler) startReplay(w http.ResponseWriter, r *http.Request, o *outlet) {
	var asked replayRequest
	if !accept(w, r, &asked) {
		return
	}
	if o.plan.relay.Mapping != nil {
		refuse(w, http.StatusConflict, "a replay reads troupe.outbox, and this outbox is "+o.plan.relay.Table)
		return
	}
	if asked.From == 0 && asked.Since.IsZero() {
		refuse(w, http.StatusBadRequest, "say from where: from_position (1 for all there is), or since, as 2026-01-31T12:00:00Z")
		return
	}
	what := relay.Replay(asked)
	if err := what.Validate(); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	job, err := o.replay.start(what, o.replayConfig())
	if err != nil {
		refuse(w, http.StatusConflict, err.Error())
		return
	}
	select { // an error of the request shows at once
	case <-job.began:
	case <-job.ended:
	case <-r.Context().Done():
	}
	p := job.last()
	a.log.Info().Str("action", "replay").Str("outbox", o.plan.name).Any("asked", asked).Str("refused", p.Error).
		Str("from", r.RemoteAddr).Msg("admin")
	if p.Error != "" {
		answer(w, http.StatusConflict, p)
		return
	}
	w.Header().Set("Location", "/replay?outbox="+o.plan.name)
	answer(w, http.StatusAccepted, p)
}

func (a *adminHandler) showReplay(w http.ResponseWriter, _ *http.Request, o *outlet) {
	p := o.replay.last()
	if p == nil {
		refuse(w, http.StatusNotFound, "there was no replay since this outbox's relay began")
		return
	}
	answer(w, http.StatusOK, p)
}

func (a *adminHandler) stopReplay(w http.ResponseWriter, r *http.Request, o *outlet) {
	o.replay.stop()
	a.log.Info().Str("action", "stop replay").Str("outbox", o.plan.name).Str("from", r.RemoteAddr).Msg("admin")
	answer(w, http.StatusOK, o.replay.last())
}

func (o *outlet) replayConfig() relay.Config {
	o.mu.Lock()
	defer o.mu.Unlock()
	config := o.plan.relay
	config.Pool = o.pool
	return config
}

var errReplayRuns = errors.New("a replay of this outbox runs: GET /replay shows it, DELETE /replay ends it")

func (r *replays) start(what relay.Replay, config relay.Config) (*replayJob, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != nil {
		select {
		case <-r.current.ended:
		default:
			return nil, errReplayRuns
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	job := &replayJob{cancel: cancel, began: make(chan struct{}), ended: make(chan struct{})}
	job.progress = replayProgress{Running: true, Begun: time.Now()}
	r.current = job
	go job.run(ctx, what, config)
	return job, nil
}

func (j *replayJob) run(ctx context.Context, what relay.Replay, config relay.Config) {
	defer close(j.ended)
	defer j.cancel()
	var once sync.Once
	last, err := what.Run(ctx, config, func(p relay.ReplayProgress) {
		j.note(p, what)
		once.Do(func() { close(j.began) })
	})
	j.note(last, what)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.progress.Running, j.progress.Ended = false, time.Now()
	switch {
	case errors.Is(err, context.Canceled):
		j.progress.Error = "ended before it was done; from_position one above position goes on there"
	case err != nil:
		j.progress.Error = err.Error()
	}
}

func (j *replayJob) note(p relay.ReplayProgress, what relay.Replay) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.progress.Lowest, j.progress.Position, j.progress.Last, j.progress.Published = p.Lowest, p.Position, p.Last, p.Published
	if what.From > 0 && what.From < p.Lowest {
		j.progress.Note = "the table begins at lowest_position: rows below it were deleted, or their partition was dropped"
	}
}

func (j *replayJob) last() replayProgress {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.progress
}

// last returns the progress of the last replay, or nil if there was none.
func (r *replays) last() *replayProgress {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == nil {
		return nil
	}
	p := r.current.last()
	return &p
}

// stop cancels the replay that runs, and waits for its end.
func (r *replays) stop() {
	if job := r.cancel(); job != nil {
		<-job.ended
	}
}

// cancel cancels the replay that runs, if there is one, and returns it.
func (r *replays) cancel() *replayJob {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != nil {
		r.current.cancel()
	}
	return r.current
}
