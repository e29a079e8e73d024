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
)

// A Work is an action on many dead letters or sagas, which continues after the request that began it.
type Work struct {
	ID       string     `json:"id"`
	Do       string     `json:"do"` // redrive, discard, migrate or retry
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

	kind *workKind
	stop context.CancelFunc
}

// A workKind has the texts and the links of the pages about a Work. It is declared in the file of the action that begins such works.
type workKind struct {
	Name    string // such as Redrive
	List    string // the page that lists its objects
	Title   string // of that page
	Object  string // such as Dead letter
	Page    string // the page of one object
	Refused string // the head of the objects that were left as they were
}

var aboutLetters = workKind{List: "/dead-letters", Title: "Dead letters", Object: "Dead letter", Page: "/dead-letter", Refused: "Refused"}

func (k workKind) named(name string) *workKind {
	k.Name = name
	return &k
}

// A Refusal is a dead letter or a saga that a Work left as it was, with the reason.
type Refusal struct {
	ID  string `json:"id"`
	Err string `json:"error"`
}

// Kind returns the texts and the links of its pages.
func (w Work) Kind() workKind { return *w.kind }

const mostRefusals = 100

func (w *Work) refuse(id, why string) {
	if w.Refused++; len(w.Refusals) < mostRefusals {
		w.Refusals = append(slices.Clip(w.Refusals), Refusal{id, why}) // slices that were returned before must not change
	}
}

// tried counts an object: done, or left as it was by an obstacle.
func (w *Work) tried(id, obstacle string) {
	if obstacle == "" {
		w.Done++
	} else {
		w.refuse(id, obstacle)
	}
	w.Total = max(w.Total, w.Done+w.Refused) // there may be more than when it began
}

// Address returns the address of its page. It also has the values that find the records of the Work when it is no longer in memory.
func (w Work) Address() string {
	return "/work?" + url.Values{
		"id": {w.ID}, "db": {w.Database}, "actor": {w.Actor}, "since": {w.Began.Add(-clockError).Format(time.RFC3339)},
	}.Encode()
}

// Share returns the completed part in percent.
func (w Work) Share() int {
	if w.Total == 0 {
		return 0
	}
	return (w.Done + w.Refused) * 100 / w.Total
}

func (w Work) title() string { return w.kind.Name + " in " + w.Database }

func (w Work) nav() string { return w.kind.List }

const (
	mostWorks = 8   // running at a time
	keptWorks = 100 // running and ended ones
	mostRate  = 10_000
	ownRate   = 50

	// clockError is the assumed difference of the clocks of the console and of a database.
	clockError = time.Minute
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

// underWay returns the running works about the objects of a page with a list.
func (w *works) underWay(list string) []Work {
	return slices.DeleteFunc(w.list(), func(one Work) bool { return one.Ended != nil || one.kind.List != list })
}

func (w *works) find(id string) (Work, error) {
	for _, one := range w.list() {
		if one.ID == id {
			return one, nil
		}
	}
	return Work{}, refuse(http.StatusNotFound, "this console does not know this action on a group: it ended long ago, or the console has restarted since: "+
		"the page Actions has its records, and the same action again continues with the rest")
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

// begin begins a Work by the user, and returns it with the address of its page.
func (a *ask) begin(one *Work, do func(context.Context, func(func(*Work))) error) (any, string, error) {
	one.Do, one.Actor, one.Reason = a.typed("do"), a.by.Name, a.by.Reason
	if err := a.works.begin(one, do); err != nil {
		return nil, "", err
	}
	now, err := a.works.find(one.ID)
	return now, now.Address(), err
}

// rate returns the most objects a second that a Work acts on.
func (a *ask) rate() (float64, error) {
	rate, err := strconv.ParseFloat(cmp.Or(a.typed("rate"), strconv.Itoa(ownRate)), 64)
	if err != nil || !(rate > 0 && rate <= mostRate) { // false for NaN
		return 0, refuse(http.StatusBadRequest, "rate %q: want more than 0 and at most %d a second", a.get("rate"), mostRate)
	}
	return rate, nil
}

// readWork returns a Work. If it is not in memory, and the address has the values that find its records, the error leads to them.
func readWork(_ context.Context, a *ask) (any, error) {
	one, err := a.work(a.get("id"))
	if err != nil && statusOf(err) == http.StatusNotFound && a.get("db") != "" && a.get("actor") != "" && a.get("since") != "" {
		records := url.Values{"db": {a.get("db")}, "actor": {a.get("actor")}, "since": {a.get("since")}}
		return nil, elsewhere{error: err, page: "/actions?" + records.Encode()}
	}
	return one, err
}

// actOnWork stops a Work.
func actOnWork(_ context.Context, a *ask) (any, string, error) {
	one, err := a.work(a.get("id"))
	if err != nil {
		return nil, "", err
	}
	if a.typed("do") != "stop" {
		return nil, "", refuse(http.StatusBadRequest, "do %q: want stop", a.typed("do"))
	}
	one.stop()
	return one, one.Address(), nil
}
