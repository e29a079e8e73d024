package console

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
)

// A Work is a redrive or a discard of many dead letters, or a move of many sagas to another definition, which continues after
// the request that began it.
type Work struct {
	ID       string     `json:"id"`
	Do       string     `json:"do"` // redrive, discard or migrate
	Database string     `json:"database"`
	Chosen   string     `json:"chosen"` // the filter, as in the address
	Actor    string     `json:"actor"`
	Reason   string     `json:"reason"`
	Total    int        `json:"total"`
	Done     int        `json:"done"`
	Refused  int        `json:"refused"`
	Refusals []Refusal  `json:"refusals"` // the first 100
	Began    time.Time  `json:"began_at"`
	Ended    *time.Time `json:"ended_at"`
	Error    string     `json:"error,omitempty"` // why it ended before it was done

	stop context.CancelFunc
}

// A Refusal is a dead letter or a saga that a Work left as it was, with the reason.
type Refusal struct {
	ID  string `json:"id"`
	Err string `json:"error"`
}

// Letters reports whether it is about dead letters.
func (w Work) Letters() bool { return w.Do != "migrate" }

// Name returns a readable name.
func (w Work) Name() string {
	switch w.Do {
	case "redrive":
		return "Redrive"
	case "discard":
		return "Discard"
	}
	return "Move of sagas"
}

const mostRefusals = 100

func (w *Work) refuse(id, why string) {
	if w.Refused++; len(w.Refusals) < mostRefusals {
		w.Refusals = append(slices.Clip(w.Refusals), Refusal{id, why}) // slices that were returned before must not change
	}
}

// Share returns the completed part in percent.
func (w Work) Share() int {
	if w.Total == 0 {
		return 0
	}
	return (w.Done + w.Refused) * 100 / w.Total
}

func (w Work) title() string { return w.Name() + " in " + w.Database }

func (w Work) nav() string {
	if w.Letters() {
		return "/dead-letters"
	}
	return "/definitions"
}

const (
	mostWorks = 8   // running at a time
	keptWorks = 100 // running and ended ones
	mostRate  = 10_000
	ownRate   = 50
)

// works holds the works of this process.
type works struct {
	ctx  context.Context
	end  context.CancelFunc
	done sync.WaitGroup

	mu  sync.Mutex
	all []*Work // the newest last
}

func newWorks() *works {
	w := new(works)
	w.ctx, w.end = context.WithCancel(context.Background())
	return w
}

func (w *works) close() {
	w.mu.Lock()
	w.end()
	w.mu.Unlock()
	w.done.Wait()
}

// start runs do in a goroutine, which must return when w.ctx ends.
func (w *works) start(do func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return refuse(http.StatusServiceUnavailable, "the console is about to end")
	}
	w.done.Go(do)
	return nil
}

// list returns a copy of each work, the newest first.
func (w *works) list() []Work {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := make([]Work, len(w.all))
	for i, one := range w.all {
		list[len(w.all)-1-i] = *one
	}
	return list
}

// underWay returns the running works about dead letters, or about sagas.
func (w *works) underWay(letters bool) []Work {
	return slices.DeleteFunc(w.list(), func(one Work) bool { return one.Ended != nil || one.Letters() != letters })
}

func (w *works) find(id string) (Work, error) {
	for _, one := range w.list() {
		if one.ID == id {
			return one, nil
		}
	}
	return Work{}, refuse(http.StatusNotFound, "there is no such work: it ended long ago, or in another process")
}

// begin runs do in a goroutine. do reports its progress, and returns when its context ends.
func (w *works) begin(one *Work, do func(context.Context, func(func(*Work))) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	running := 0
	for _, other := range w.all {
		if other.Ended == nil {
			running++
		}
	}
	switch {
	case w.ctx.Err() != nil:
		return refuse(http.StatusServiceUnavailable, "the console is about to end")
	case running >= mostWorks:
		return refuse(http.StatusTooManyRequests, "%d works are under way: wait for one, or stop it", running)
	}
	if len(w.all) >= keptWorks {
		oldest := slices.IndexFunc(w.all, func(other *Work) bool { return other.Ended != nil }) // at most mostWorks run
		w.all = slices.Delete(w.all, oldest, oldest+1)
	}
	one.ID, one.Began, one.Refusals = uuid.NewString(), time.Now().UTC(), []Refusal{}
	var ctx context.Context
	ctx, one.stop = context.WithCancel(w.ctx)
	w.all = append(w.all, one)
	w.done.Go(func() {
		defer one.stop()
		err := do(ctx, func(change func(*Work)) {
			w.mu.Lock()
			defer w.mu.Unlock()
			change(one)
		})
		w.mu.Lock()
		defer w.mu.Unlock()
		now := time.Now().UTC()
		switch one.Ended = &now; {
		case err != nil && ctx.Err() != nil:
			one.Error = "it was stopped: the same again goes on with the rest"
		case err != nil:
			one.Error = err.Error()
		}
	})
	return nil
}

// actOnGroup begins a Work on the chosen dead letters.
func actOnGroup(ctx context.Context, a *ask) (any, string, error) {
	s, filter, err := a.group()
	if err != nil {
		return nil, "", err
	}
	rate, err := strconv.ParseFloat(cmp.Or(a.get("rate"), strconv.Itoa(ownRate)), 64)
	if err != nil || !(rate > 0 && rate <= mostRate) { // false for NaN
		return nil, "", refuse(http.StatusBadRequest, "rate %q: want more than 0 and at most %d a second", a.get("rate"), mostRate)
	}
	if a.get("do") == "discard" {
		if err := a.by.CheckReasoned(); err != nil {
			return nil, "", err
		}
		if err := a.counted(func() (int, error) { return s.repairs.Count(ctx, filter) }); err != nil {
			return nil, "", err
		}
	}
	one := &Work{Do: a.get("do"), Database: s.Name, Chosen: groupFacts{Asked: a.values}.Choice().Encode(), Actor: a.by.Name, Reason: a.by.Reason}
	err = a.works.begin(one, func(ctx context.Context, tell func(func(*Work))) error {
		if one.Do == "discard" {
			return discardAll(ctx, s, filter, a.by, tell)
		}
		r, err := s.repairs.Redrive(ctx, filter, repair.RedriveConfig{By: a.by, Rate: rate, Progress: func(r repair.RedriveResult) {
			tell(func(w *Work) { w.redriven(r) })
		}})
		tell(func(w *Work) { w.redriven(r) })
		return err
	})
	if err != nil {
		return nil, "", err
	}
	now, err := a.works.find(one.ID)
	return now, "/work?" + url.Values{"id": {one.ID}}.Encode(), err
}

func (w *Work) redriven(r repair.RedriveResult) {
	w.Total, w.Done, w.Refused, w.Refusals = r.Total, r.Redriven, r.Refused, make([]Refusal, len(r.Refusals))
	for i, one := range r.Refusals {
		w.Refusals[i] = Refusal{one.ID.String(), one.Err}
	}
}

func discardAll(ctx context.Context, s *source, filter repair.Filter, by admin.Actor, tell func(func(*Work))) error {
	total, err := s.repairs.Count(ctx, filter)
	if err != nil {
		return err
	}
	tell(func(w *Work) { w.Total = total })
	n, err := s.repairs.Discard(ctx, filter, by)
	tell(func(w *Work) { w.Done, w.Total = n, max(n, w.Total) })
	return err
}

func readWork(_ context.Context, a *ask) (any, error) { return a.work(a.get("id")) }

// actOnWork stops a Work.
func actOnWork(_ context.Context, a *ask) (any, string, error) {
	one, err := a.work(a.get("id"))
	if err != nil {
		return nil, "", err
	}
	if a.get("do") != "stop" {
		return nil, "", refuse(http.StatusBadRequest, "do %q: want stop", a.get("do"))
	}
	one.stop()
	return one, "/work?" + url.Values{"id": {one.ID}}.Encode(), nil
}
