package console

import (
	"context"
	"net/http"
	"sync"
	"time"
)

const (
	mostStreams   = 256 // open live pages
	mostStrangers = 64  // the ones among them that are not signed in
	mostOfClient  = 8   // the ones of one user, or of one address that is not signed in: a browser has no stream for a hidden page
	mostLooks     = 2   // looks that read at the same time, of all clients together: as mostAtOnce
)

// streams counts the open live pages.
type streams struct{ holdings }

// take counts a stream of a client, until release is called.
func (s *streams) take(client string, signedIn bool) (release func(), err error) {
	return s.holdings.take(client, signedIn, 1, func(own, all, strangers int) error {
		switch {
		case own >= mostOfClient:
			return refuse(http.StatusTooManyRequests, "%d pages of this client are live already", mostOfClient)
		case all >= mostStreams, !signedIn && strangers >= mostStrangers:
			return refuse(http.StatusServiceUnavailable, "too many pages are live already")
		}
		return nil
	})
}

// looks reads the facts of live pages, once every liveEvery for all streams with the same key.
type looks struct {
	every time.Duration
	turns chan struct{} // one for each look that reads
	works *works

	mu  sync.Mutex
	all map[string]*look
}

func newLooks(w *works) *looks {
	return &looks{every: liveEvery, turns: make(chan struct{}, mostLooks), works: w, all: make(map[string]*look)}
}

// A look is read again and again while at least one stream follows it.
type look struct {
	end     context.CancelFunc
	streams int // guarded by looks.mu

	mu    sync.Mutex
	first int // number of the last look that has begun
	last  int // number of the last look that has ended
	state string
	next  chan struct{} // closed when the next look ends; done: no look follows
	done  bool
}

// join returns the look of a key, which is begun if no other stream follows it. The stream calls leave when it ends.
func (l *looks) join(key string, read func(context.Context) string) (one *look, leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one = l.all[key]
	if one == nil {
		one = &look{next: make(chan struct{})}
		var ctx context.Context
		ctx, one.end = context.WithCancel(l.works.ctx)
		if err := l.works.start(func() { l.run(ctx, one, read) }); err != nil {
			one.end()
			return nil, nil, err
		}
		l.all[key] = one
	}
	one.streams++
	return one, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if one.streams--; one.streams == 0 {
			one.end()
			delete(l.all, key)
		}
	}, nil
}

func (l *looks) run(ctx context.Context, one *look, read func(context.Context) string) {
	defer one.stop()
	tick := time.NewTicker(l.every)
	defer tick.Stop()
	for {
		select {
		case l.turns <- struct{}{}:
		case <-ctx.Done():
			return
		}
		one.begin()
		state := read(ctx)
		<-l.turns
		if ctx.Err() != nil {
			return
		}
		one.ended(state)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (k *look) begin() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.first++
}

func (k *look) ended(state string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state, k.last = state, k.first
	close(k.next)
	k.next = make(chan struct{})
}

func (k *look) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.done = true
	close(k.next)
}

// begun returns the number of the last look that has begun. A stream that joins waits for a later one: an earlier look may have read
// older facts than its page.
func (k *look) begun() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.first
}

// wait returns the state of the first look after number after that has ended, and its number; false if ctx ends, or no look
// follows.
func (k *look) wait(ctx context.Context, after int) (state string, number int, ok bool) {
	for {
		k.mu.Lock()
		state, number, next, done := k.state, k.last, k.next, k.done
		k.mu.Unlock()
		switch {
		case number > after:
			return state, number, true
		case done:
			return "", 0, false
		}
		select {
		case <-next:
		case <-ctx.Done():
			return "", 0, false
		}
	}
}
