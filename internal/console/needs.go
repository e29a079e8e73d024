package console

import (
	"fmt"
	"net/url"
	"time"

	relays "github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/saga"
)

const (
	lagSoon      = time.Minute
	headroomSoon = 1_000_000
)

// needs returns the tasks that this database's facts imply.
func (d *databaseFacts) needs() (all []need) {
	add := d.adder(&all)
	if d.Error != "" {
		add(0, "now", "The database cannot be read: "+d.Error, "This service is not shown until its database answers.", "/relay")
		return all
	}
	d.outboxNeeds(add)
	d.letterNeeds(add)
	if d.Parked.Count > 0 {
		d.parkedNeed(add)
	}
	if d.Questions.Count > 0 || d.Questions.More {
		text := d.Questions.of("saga waits", "sagas wait") + " for an operator's answer"
		if d.Questions.Count == 0 {
			text = "Sagas may wait for an operator's answer: some definitions could not be read"
		}
		add(5, "soon", text, "The page lists the questions, and until when each can be answered.", "/questions")
	}
	if d.Missing.Count > 0 {
		n := add(4, "now", d.Missing.of("expected event is", "expected events are")+" missing", "Open the messages of a key to see how far its flow is.", "/expectations", "status", repair.Missing)
		n.Since = d.MissedSince
	}
	d.jobNeeds(add)
	if d.Outbox.Headroom < headroomSoon {
		add(5, "soon", fmt.Sprintf("The outbox's partitions have room for %s only", count(d.Outbox.Headroom, "row", "rows")), "A running relay adds partitions: its log has the reason if it does not.", "/relay")
	}
	if d.Held.Count > 0 {
		n := add(6, "soon", d.Held.of("key is held, and waits for its", "keys are held, and wait for their")+" next try", "They continue by themselves when the failure is over.", "/held")
		n.Since, n.Behind = d.ages.Oldest, behind(d.ages.Behind)
	}
	return all
}

// outboxNeeds adds the tasks for the outboxes of the database and their relays.
func (d *databaseFacts) outboxNeeds(add addNeed) {
	if old := d.Outbox.OldestUntried; old > lagSoon {
		add(2, "now", fmt.Sprintf("The outbox is %s behind, with %s to publish", short(old), count(d.Outbox.Pending-d.Outbox.Failed, "row", "rows")),
			"Is the relay running, and can it reach Kafka?", "/relay")
	}
	if d.RelaysError != "" {
		add(2, "soon", "The relays' tables cannot be read: "+d.RelaysError, "Migrate the database, or grant this role the missing rights.", "/relay")
		if n := d.Outbox.Parked; n > 0 { // their topics and errors are not known
			add(1, "now", count(n, "row", "rows")+" cannot be published", "Remove the cause, then retry; or discard.", "/relay")
		}
	}
	for _, o := range d.Relays {
		d.relayNeeds(o, add)
	}
}

// adder returns a function that adds a task for this database.
func (d *databaseFacts) adder(all *[]need) addNeed {
	return func(rank int, urgency, text, remedy, page string, values ...string) *need {
		q := url.Values{"db": {d.Name}}
		for i := 0; i+1 < len(values); i += 2 {
			q.Set(values[i], values[i+1])
		}
		*all = append(*all, need{Urgency: urgency, Database: d.Name, Text: text, Remedy: remedy, Page: page + "?" + q.Encode(), rank: rank})
		return &(*all)[len(*all)-1] // valid until the next one is added: for fields that few tasks have
	}
}

// addNeed adds a task for the operator of a database.
type addNeed func(rank int, urgency, text, remedy, page string, values ...string) *need

// letterNeeds adds a task for each of the largest causes of dead letters, and one for the rest.
func (d *databaseFacts) letterNeeds(add addNeed) {
	rest := d.DeadLetters
	for _, c := range d.Causes {
		rest -= c.Count
		n := add(3, "now", fmt.Sprintf("%s: %s", count(c.Count, "dead letter", "dead letters"), c.Text()),
			"Correct the cause, then redrive the group; or edit, or discard.", "/dead-letters/list", "cause", c.ID)
		n.Since, n.Behind = &c.First, count(c.Keys, "key", "keys")+", the last one failed "+c.Last.UTC().Format(time.DateTime)+" UTC"
		n.All = &groupAction{"Redrive " + count(c.Count, "dead letter", "dead letters"), address("/dead-letters/act", "db", d.Name, "do", "redrive", "cause", c.ID), "/dead-letters/act", "redrive"}
	}
	if rest > 0 {
		text := count(rest, "dead letter", "dead letters")
		if len(d.Causes) > 0 {
			text = count(rest, "more dead letter", "more dead letters") + ", of other causes"
		}
		add(3, "now", text, "The page has all causes.", "/dead-letters")
	}
}

// outboxFacts describes an outbox with its relays.
type outboxFacts struct {
	Table  string        `json:"table"` // "": troupe.outbox
	State  string        `json:"state"` // active, paused, no relay, not all shards
	Paused *relays.Pause `json:"paused"`
	Slot   string        `json:"slot_name"`
	WAL    string        `json:"wal_status"` // of the slot; "": there is no slot
	Parked int           `json:"parked"`

	ran    bool
	topics []relays.Topic // with failed rows
}

// Badge returns the state as the page of relays shows it.
func (o outboxFacts) Badge() badge {
	b := badgeOf(o.State, o.Parked)
	if o.Table != "" {
		b.Text = o.Table + ": " + b.Text
	}
	return b
}

func outboxFactsOf(o relays.Outbox) outboxFacts {
	r := outboxFacts{Table: o.Table, State: relayState(o), Paused: o.Paused, Slot: o.SlotName, ran: len(o.Leases) > 0, topics: o.Topics}
	if o.Slot != nil {
		r.WAL = o.Slot.WALStatus
	}
	for _, t := range o.Topics {
		r.Parked += t.Parked
	}
	return r
}

// relayNeeds adds the tasks for one outbox.
func (d *databaseFacts) relayNeeds(o outboxFacts, add addNeed) {
	name := tableName(o.Table)
	if p := o.Paused; p != nil {
		n := add(1, "now", fmt.Sprintf("The relays of %s are paused by %s: %s", name, p.Actor, p.Reason), "Rows wait until an operator resumes them.", "/relay")
		n.Since, n.Behind = &p.Since, count(d.Outbox.Pending, "row waits", "rows wait")
		n.All = &groupAction{"Resume", address("/relay/act", "db", d.Name, "table", o.Table, "do", "resume"), "/relay/act", "resume"}
	} else if o.State != "active" && o.ran && d.Outbox.Pending > 0 {
		add(1, "now", fmt.Sprintf("No relay publishes %s (%s)", name, o.State), "Does a relay run, and can it reach the database?", "/relay")
	}
	if o.WAL == "unreserved" || o.WAL == "lost" {
		text := "the server may soon remove the log that it needs"
		if o.WAL == "lost" {
			text = "the server has removed the log that it needs"
		}
		add(1, "now", fmt.Sprintf("Slot %s is %s: %s", o.Slot, o.WAL, text),
			"Find out why nothing is published; the relay replaces a lost slot.", "/relay")
	}
	for _, t := range o.topics[:min(len(o.topics), topicsShown)] {
		d.failedNeed(o.Table, t, add)
	}
	if more := len(o.topics) - topicsShown; more > 0 {
		add(1, "now", fmt.Sprintf("%s of %s have failed rows, too", count(more, "more topic", "more topics"), name), "The page has all topics.", "/relay")
	}
}

// topicsShown is the number of topics of an outbox whose failed rows have a task of their own.
const topicsShown = 5

// failedNeed adds the task for the failed rows of a topic.
func (d *databaseFacts) failedNeed(table string, t relays.Topic, add addNeed) {
	topic := t.Topic
	if topic == "" {
		topic = "no topic"
	}
	behind := ""
	if t.Waiting > 0 {
		behind = "; behind " + map[bool]string{true: "it", false: "them"}[t.Parked+t.Retrying == 1] + " " + count(t.Waiting, "row of the same key waits", "rows of the same keys wait")
	}
	page := []string{"table", table, "topic", t.Topic}
	if t.Parked > 0 {
		n := add(1, "now", fmt.Sprintf("%s for %s cannot be published%s: %s", count(t.Parked, "row", "rows"), topic, behind, t.Error),
			"Remove the cause, then retry; or discard.", "/relay/rows", page...)
		n.Since = t.Since
		if t.Topic != "" {
			n.All = &groupAction{"Retry " + count(t.Parked, "row", "rows"), address("/relay/act", "db", d.Name, "table", table, "topic", t.Topic, "do", "retry"), "/relay/act", "retry"}
		}
	} else if t.Retrying > 0 {
		n := add(5, "soon", fmt.Sprintf("%s for %s and tried again by the relay%s: %s", count(t.Retrying, "row is refused", "rows are refused"), topic, behind, t.Error),
			"The error has the reason. The relay creates no topics: if the topic is missing, create it.", "/relay/rows", page...)
		n.Since = t.Since
	}
}

// parkedNeed adds the task for parked sagas. If all are of one type, the task has the action on all of them.
func (d *databaseFacts) parkedNeed(add addNeed) {
	n := add(4, "now", d.Parked.of("saga is", "sagas are")+" parked", "Each waits for a decision: its page says which are possible.",
		"/sagas", "status", string(saga.Parked), "oldest", "1")
	n.Since = d.ParkedSince
	if len(d.types) == 1 {
		for name := range d.types {
			n.All = &groupAction{"Retry all parked " + name, address("/sagas/retry", "db", d.Name, "saga", name), "/sagas/retry", "retry"}
		}
	}
}

// address returns the address of a page of the console; empty values are left out.
func address(page string, values ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(values); i += 2 {
		if values[i+1] != "" {
			q.Set(values[i], values[i+1])
		}
	}
	return page + "?" + q.Encode()
}

// behind describes n messages that wait behind another one; "" if n is 0.
func behind(n int) string {
	if n == 0 {
		return ""
	}
	return count(n, "message waits", "messages wait") + " behind"
}
