package flow

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/alert"
	"github.com/troupe-go/troupe/internal/pg"
)

var (
	//go:embed sql/claim_alerts.sql
	claimAlertsSQL string
	//go:embed sql/accept_alerts.sql
	acceptAlertsSQL string
	//go:embed sql/retry_alerts.sql
	retryAlertsSQL string
)

const (
	alertLimit   = 100              // alerts in one request
	alertTimeout = 10 * time.Second // of one request
	alertLease   = time.Minute      // then another member posts the alerts of a member that has ended
)

// Statuses of an alert.
const (
	missing = "missing"
	late    = "late"
)

// alertSpace is the namespace of the ids of alerts.
var alertSpace = uuid.MustParse("6f1f5d0e-3c1b-4d6b-9d0a-5a5c3a7f6b11")

// alertID returns the id of the alerts of an expectation that begins with m. It is computed from m, so that an expectation that
// the database has lost gets the same id again.
func alertID(group, name, key string, m envelope.Message) uuid.UUID {
	return uuid.NewSHA1(alertSpace, fmt.Appendf(nil, "%q", []string{group, name, key, m.Identity()}))
}

// alerted is the JSON of one alert in a request.
type alerted struct {
	ID          uuid.UUID  `json:"id"`
	Status      string     `json:"status"`
	Expectation string     `json:"expectation"`
	Key         string     `json:"key"`
	Expects     []string   `json:"expects,omitempty"`
	AfterAt     time.Time  `json:"after_at"`
	DueAt       time.Time  `json:"due_at"`
	MissedAt    time.Time  `json:"missed_at"`
	CameAt      *time.Time `json:"came_at,omitempty"`
}

// posted is the JSON body of a request.
type posted struct {
	Text    string    `json:"text"`
	Service string    `json:"service"`
	Alerts  []alerted `json:"alerts"`
}

func (s *Service) alertConfig() alert.Config {
	return alert.Config{URL: s.cfg.AlertURL, Header: s.cfg.AlertHeader, Timeout: alertTimeout, Log: s.cfg.Log}
}

func (s *Service) postAlerts(ctx context.Context, due <-chan struct{}) {
	to, err := alert.New(s.alertConfig())
	if err != nil { // cannot happen: New has validated the configuration
		s.cfg.Log.Error().Err(err).Msg("alerts of expectations are not posted")
		return
	}
	s.repeat(ctx, "post alerts of expectations", due, func(ctx context.Context) (time.Duration, error) {
		n, wait, err := s.postDue(ctx, to)
		if err == nil && n < alertLimit {
			wait = overdueEvery
		}
		return wait, err
	})
	if err := to.Close(); err != nil {
		s.cfg.Log.Error().Err(err).Msg("the alerts' client did not close")
	}
}

// postDue posts the alerts that are due, at most alertLimit, in one request, and returns their number. If the receiver does not
// accept them, they are due again after wait.
func (s *Service) postDue(ctx context.Context, to *alert.Notifier) (n int, wait time.Duration, err error) {
	all, err := s.claimAlerts(ctx)
	if err != nil || len(all) == 0 {
		return 0, 0, err
	}
	body, err := json.Marshal(posted{Text: s.alertText(all), Service: s.cfg.Declared.Hop, Alerts: all})
	if err == nil {
		wait, err = to.Post(ctx, body)
	}
	// The result is stored even if ctx has ended: without it the next member posts the alerts again.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flowLimit)
	defer cancel()
	if err != nil {
		wait = max(wait, flowRetry.Initial)
		args := s.alertArgs(all)
		args["wait"] = wait.Seconds()
		_, failed := s.p.Extension().Pool().Exec(ctx, retryAlertsSQL, args)
		return len(all), wait, errors.Join(err, failed)
	}
	return len(all), 0, s.accepted(ctx, all)
}

func (s *Service) claimAlerts(ctx context.Context) ([]alerted, error) {
	ctx, cancel := context.WithTimeout(ctx, flowLimit)
	defer cancel()
	rows, _ := s.p.Extension().Pool().Query(ctx, claimAlertsSQL, pg.Args{
		"group": s.p.Group(), "limit": alertLimit, "lease": alertLease.Seconds(),
	})
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (a alerted, err error) {
		err = row.Scan(&a.Expectation, &a.Key, &a.ID, &a.AfterAt, &a.DueAt, &a.MissedAt, &a.CameAt)
		if a.Status = missing; a.CameAt != nil {
			a.Status = late
		}
		if e := s.expectations[a.Expectation]; e != nil {
			a.Expects = bodyOf(e.Expect).Expects
		}
		return a, err
	})
}

func (s *Service) alertArgs(all []alerted) pg.Args {
	names, keys, came := make([]string, len(all)), make([]string, len(all)), make([]bool, len(all))
	for i, a := range all {
		names[i], keys[i], came[i] = a.Expectation, a.Key, a.Status == late
	}
	return pg.Args{"group": s.p.Group(), "names": names, "keys": keys, "came": came}
}

// acceptTries limits the tries to store that an alert was accepted, while handlers have its row locked. If all of them fail,
// the alert is posted again when its lease ends.
const acceptTries = 20

// accepted stores that the receiver has accepted the alerts.
func (s *Service) accepted(ctx context.Context, all []alerted) error {
	left := make(map[[2]string]alerted, len(all))
	for _, a := range all {
		left[[2]string{a.Expectation, a.Key}] = a
	}
	for range acceptTries {
		rest := make([]alerted, 0, len(left))
		for _, a := range left {
			rest = append(rest, a)
		}
		rows, _ := s.p.Extension().Pool().Query(ctx, acceptAlertsSQL, s.alertArgs(rest))
		var of [2]string
		_, err := pgx.ForEachRow(rows, []any{&of[0], &of[1]}, func() error {
			delete(left, of)
			return nil
		})
		if err != nil || len(left) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil // the rows that are left are locked or deleted
}

// alertText returns the text for people: a line for each status and name. It removes links and mentions from keys.
func (s *Service) alertText(all []alerted) string {
	type group struct{ status, name string }
	keys := make(map[group][]string)
	var order []group
	for _, a := range all {
		g := group{a.Status, a.Expectation}
		if keys[g] == nil {
			order = append(order, g)
		}
		keys[g] = append(keys[g], alert.Chat(a.Key))
	}
	var lines []string
	waits := false
	for _, g := range order {
		of := keys[g]
		text := strings.Join(of[:min(len(of), namedKeys)], ", ")
		if more := len(of) - namedKeys; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		waits = waits || g.status == missing
		lines = append(lines, fmt.Sprintf("%s: expectation %s: %d %s: %s", s.cfg.Declared.Hop, g.name, len(of), g.status, text))
	}
	if waits && s.p.Ready() != nil {
		lines = append(lines, "This service handles no messages now: the missing events may be waiting for it.")
	}
	return strings.Join(lines, "\n")
}
