package coordinator

import (
	"context"
	_ "embed"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/topics"
)

//go:embed sql/new_definitions.sql
var newDefinitionsSQL string

const (
	// learnEvery is the interval at which a coordinator looks for new definitions, also while no event comes.
	learnEvery = 5 * time.Second
	// learnLimit limits one search for new definitions, and one call of renew. Otherwise a server that no longer answers would block
	// them for ever.
	learnLimit = 30 * time.Second
)

// errNewDefinitions reports that this process has just learned definitions of other processes. The events must be decided on again,
// since they may be for sagas of these definitions too.
var errNewDefinitions = errors.New("definitions were stored meanwhile")

// storedDefinition is a row of troupe.saga_definitions.
type storedDefinition struct{ Hash, Text string }

// queueNew adds to batch the query for definitions that this process does not know: definitions of its types, and of other types of
// which its coordinator has sagas. Every process stores its definitions before it starts a saga of them. So a transaction that runs
// this query before it loads a saga knows the definition of that saga.
func (c *Coordinator) queueNew(batch *pgx.Batch, found *[]storedDefinition) {
	args := pg.Args{
		"known": c.definitions.Hashes(), "names": c.definitions.Names(), "hop": c.hop.String(), "group": c.cfg.Participant.Group(),
	}
	batch.Queue(newDefinitionsSQL, args).Query(func(rows pgx.Rows) (err error) {
		*found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[storedDefinition])
		return err
	})
}

// learn adds stored definitions to the known ones, and consumes their hops.
func (c *Coordinator) learn(found []storedDefinition) {
	for _, is := range found {
		d, err := saga.Parse([]byte(is.Text))
		if err != nil {
			c.definitions.AddUnreadable(is.Hash, is.Text, false)
			c.cfg.Log.Warn().Err(err).Str("definition", is.Hash).Msg(unreadableText)
			continue
		}
		c.definitions.Add(is.Hash, d)
		c.cfg.Log.Info().Str("definition", d.String()).Msg("another process has stored a definition: its events are consumed")
		c.consume(d)
	}
}

// consume makes the participant consume the hops of d that this process does not consume yet.
//
// A topic of Kafka that the group has not consumed before is read from its start. So old events may begin sagas, and old awaited events
// are stashed.
func (c *Coordinator) consume(d *saga.Definition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hops == nil {
		return // New is still running, and consumes the hops itself
	}
	var more []topics.Hop
	for _, hop := range d.Hops() {
		switch {
		case slices.Contains(c.hops, hop):
		case hop == c.hop.Name(): // register has registered handleObserved for its events
		default:
			more = append(more, topics.MustHop(c.hop.Flow(), hop))
			c.hops = append(c.hops, hop)
		}
	}
	c.consumeAlso(more)
}

// watch looks for new definitions until ctx ends. handleEvents would not find a definition that reads other hops, if no event comes
// from the hops that are consumed. watch also calls renew.
func (c *Coordinator) watch(ctx context.Context) {
	tick := time.NewTicker(learnEvery)
	defer tick.Stop()
	for {
		c.renewInTime(ctx)
		c.searchDefinitions(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// renewInTime calls renew with a time limit. renew may wait for a row that another transaction has locked, and must not use up the time
// of searchDefinitions.
func (c *Coordinator) renewInTime(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.learnLimit)
	defer cancel()
	c.renew(ctx)
}

// searchDefinitions learns the definitions that other processes have stored.
func (c *Coordinator) searchDefinitions(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.learnLimit)
	defer cancel()
	var found []storedDefinition
	batch := &pgx.Batch{}
	c.queueNew(batch, &found)
	if err := c.cfg.Pool.SendBatch(ctx, batch).Close(); err == nil { // after an error the next call tries again; the participant reports an outage
		c.learn(found)
	}
}

// queryNewDefinitions adds the query for new definitions to the first load of w. If it finds any, Messages of w returns
// errNewDefinitions.
func (c *Coordinator) queryNewDefinitions(w *decisions.Work) {
	var found []storedDefinition
	batch := &pgx.Batch{}
	c.queueNew(batch, &found)
	w.WithFirstLoad(batch, func() error {
		if len(found) == 0 {
			return nil
		}
		c.learn(found)
		return errNewDefinitions
	})
}

// unreadableText is the log line about a definition that this program cannot parse, as one of a newer program.
const unreadableText = "a stored definition cannot be read: events of its sagas, on hops that this process consumes, become dead letters; " +
	"other hops are not consumed for it"
