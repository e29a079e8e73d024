package timeline

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/topics"
)

// conclude adds the findings, entry by entry.
func (r *reading) conclude() {
	effects := make(map[int][]*Entry)
	for i := range r.timeline.Entries {
		e := &r.timeline.Entries[i]
		effects[e.Cause] = append(effects[e.Cause], e)
	}
	for i := range r.timeline.Entries {
		for _, text := range r.findings(&r.timeline.Entries[i], effects[i]) {
			r.timeline.Findings = append(r.timeline.Findings, Finding{i, text})
		}
	}
}

func (r *reading) findings(e *Entry, effects []*Entry) (texts []string) {
	if e.isMessage() && e.CausationID != "" && e.Cause < 0 {
		texts = append(texts, "what caused it, message "+e.CausationID+", was not found: it is under another key, older, or on a partition "+
			"from before partitions were added")
	}
	if e.Outbox != nil && e.Outbox.Status != "done" {
		return append(texts, r.unpublished(e))
	}
	switch e.Kind {
	case Held:
		texts = append(texts, held(e.Held))
	case DeadLetter:
		if text := letter(e); text != "" {
			texts = append(texts, text)
		}
	case Command:
		if text := r.unanswered(e, effects); text != "" {
			texts = append(texts, text)
		}
	case Event:
		if len(effects) == 0 {
			texts = append(texts, r.unread(e)...)
		}
	case Retry:
		if r.waiting(e) {
			t, _ := topics.Parse(e.Record.Topic)
			texts = append(texts, fmt.Sprintf("waits on %s, next try %s", e.Record.Topic, due(e.At.Add(t.Delay).Sub(r.timeline.Read))))
		}
	}
	return texts
}

func (r *reading) unpublished(e *Entry) string {
	o := e.Outbox
	what := "not published"
	if e.Kind == DeadLetter {
		what = "its copy for the topic is not published"
	}
	at := fmt.Sprintf("row %d of the outbox of %s", o.Position, o.Database)
	switch {
	case o.Status == "parked":
		return fmt.Sprintf("%s: %s is parked after attempt %d: %s; its key waits until an operator retries or discards the row", what, at, o.Attempts, o.LastError)
	case o.Status == "retrying":
		return fmt.Sprintf("%s: %s, attempt %s failed, next try %s: %s", what, at, numbered(o.Attempts, o.MaxAttempts), due(o.NextTry), o.LastError)
	case o.Behind != 0:
		return fmt.Sprintf("%s: %s waits behind row %d of its key, which is %s: %s", what, at, o.Behind, o.BehindStatus, o.BehindError)
	}
	age := Short(max(0, r.timeline.Read.Sub(e.At)))
	if paused := r.paused[o.Database]; paused != "" {
		return fmt.Sprintf("%s yet: %s is %s old, and the relays of %s are paused since %s: outbox-relay resume ends it", what, at, age, o.Database, paused)
	}
	return fmt.Sprintf("%s yet: %s is %s old, and no attempt failed: is the relay of %s running?", what, at, age, o.Database)
}

func held(h *Attempt) string {
	since := "held since " + moment(h.Since)
	if h.Behind != nil {
		return fmt.Sprintf("%s behind offset %d of its key, of which %s, next try %s: %s: %s", since, *h.Behind,
			tried(h.Failed, h.MaxAttempts), due(h.NextTry), h.Class, h.LastError)
	}
	if h.Attempts == 0 && h.LastError == "" { // the messages before it are gone: it is the next
		return since + ", and the next of its key to be tried"
	}
	return fmt.Sprintf("%s: %s, next try %s: %s: %s", since, tried(h.Attempts, h.MaxAttempts), due(h.NextTry), h.Class, h.LastError)
}

// tried returns "attempt 3 of 8 failed". A rate limit, and a wait for a handler, count no attempt.
func tried(n, of int) string {
	if n == 0 {
		return "no attempt has counted"
	}
	return "attempt " + numbered(n, of) + " failed"
}

func letter(e *Entry) string {
	l := e.DeadLetter
	switch l.Status {
	case "open":
		return fmt.Sprintf("dead letter %s waits for a person, see troupe dlq show: %s after attempt %d: %s", l.ID, l.Class, l.Attempts, l.Error)
	case "":
		return fmt.Sprintf("dead letter %s, by its copy on the topic: %s after attempt %d: %s; only the database of %s knows whether it is still open",
			l.ID, l.Class, l.Attempts, l.Error, e.Hop)
	}
	return ""
}

// unanswered explains why a command has no answer. It returns "" if the command has one, or if its held row or dead letter
// explains it.
func (r *reading) unanswered(e *Entry, effects []*Entry) string {
	for _, effect := range effects {
		switch effect.Kind {
		case Held, DeadLetter:
			return ""
		case Retry:
			if effect.Outbox != nil || r.waiting(effect) {
				return ""
			}
		case Event:
			if effect.Hop == e.Hop && effect.Outcome != envelope.None {
				return ""
			}
		}
	}
	const nothing = "no answer, and nothing is held"
	if e.Record == nil {
		return nothing + "; it was published, and is not among the records that were read"
	}
	consumers := r.handlers(e)
	if !r.groupsSeen || r.groupsIncomplete && len(consumers) == 0 {
		return nothing + "; how far its hop has read was not seen"
	}
	if len(consumers) == 0 {
		return fmt.Sprintf("%s: no group has read anything of %s: no participant has run there, or its group has a name that does not begin with the flow's",
			nothing, e.Record.Topic)
	}
	var behind []string
	for _, name := range consumers {
		text, late := r.behind(name, e.Record)
		if !late {
			text = fmt.Sprintf("group %s is past it: its answer is under another key, older than the messages read, or on a server that was not read", name)
		}
		behind = append(behind, text)
	}
	return nothing + ": " + strings.Join(behind, "; ")
}

// unread names the groups that have not reached an event yet.
func (r *reading) unread(e *Entry) (texts []string) {
	if e.Record == nil {
		return nil
	}
	for _, name := range r.consumers(e.Record.Topic) {
		if text, late := r.behind(name, e.Record); late {
			texts = append(texts, text)
		}
	}
	return texts
}

// waiting reports whether a message on a retry topic has not been tried yet.
func (r *reading) waiting(e *Entry) bool {
	if e.Record == nil {
		return false
	}
	for _, name := range r.handlers(e) {
		if _, late := r.behind(name, e.Record); late {
			return true
		}
	}
	return false
}

// handlers returns the groups that have committed offsets of a hop's own topic, or else the hop's group, which has not committed
// one there yet.
func (r *reading) handlers(e *Entry) []string {
	consumers := r.consumers(e.Record.Topic)
	if _, there := r.groups[e.Hop]; len(consumers) == 0 && there {
		return []string{e.Hop}
	}
	return consumers
}

// consumers returns the groups that have committed offsets of a topic.
func (r *reading) consumers(topic string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(r.groups)) {
		for p := range r.groups[name].next {
			if p.topic == topic {
				names = append(names, name)
				break
			}
		}
	}
	return names
}

// behind reports whether a group has not reached a record yet, and describes its progress.
func (r *reading) behind(name string, at *Record) (text string, late bool) {
	g, p := r.groups[name], partition{at.Topic, at.Partition}
	next, any := g.next[p]
	if any && next > at.Offset {
		return "", false
	}
	text = fmt.Sprintf("group %s has not reached it: it is %s behind on partition %d", name, counted(r.ends[p]-next, "message"), p.id)
	if !any {
		text = fmt.Sprintf("group %s has not reached it: it has committed nothing of partition %d yet", name, p.id)
	}
	if g.empty {
		text += ", and has no members now"
	}
	return text, true
}

func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// numbered returns "3 of 8", or "3" if there is no limit of attempts.
func numbered(n, of int) string {
	if of == 0 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d of %d", n, of)
}

func due(in time.Duration) string {
	if in <= 0 {
		return "is due"
	}
	return "in " + Short(in)
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// Short formats d with about three digits: 250 ms, 1.2 s, 3m20s.
func Short(d time.Duration) string {
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	switch {
	case d < time.Second:
		return fmt.Sprintf("%s%d ms", sign, d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%s%.1f s", sign, d.Seconds())
	}
	return sign + d.Round(time.Second).String()
}
