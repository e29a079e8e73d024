package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // so that each member knows the same time zones, also in an image without them

	"github.com/netresearch/go-cron"
)

// searchYears limits the search for the next time. Two leap days are at most 8 years apart, as from 2096 to 2104.
const searchYears = 9

// maxCron limits the length of a cron expression, in bytes.
const maxCron = 200

var parser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom).
	WithMaxSearchYears(searchYears)

// A Cron gives the times of a cron expression in a time zone. It is safe for concurrent use.
type Cron struct {
	spec *cron.SpecSchedule // in UTC
	zone *time.Location
	// everyHour is true if the expression matches each hour.
	everyHour bool
}

// ParseCron parses an expression of five fields (minute, hour, day of the month, month, day of the week), or a word such as @daily. If
// neither day field is *, a day that matches one of them is enough, as in crontab(5). zone is a name of the tz database, such as Europe/Berlin.
func ParseCron(text, zone string) (Cron, error) {
	if len(text) > maxCron {
		return Cron{}, fmt.Errorf("cron: %d bytes: at most %d", len(text), maxCron)
	}
	if strings.Contains(text, "=") || strings.HasPrefix(text, "@every") {
		return Cron{}, fmt.Errorf("cron %q: want five fields such as '0 8 * * 1-5', without a time zone, which is a setting of its own", text)
	}
	parsed, err := parser.Parse(text)
	if err != nil {
		return Cron{}, fmt.Errorf("cron %q: %w", text, err)
	}
	spec, is := parsed.(*cron.SpecSchedule)
	if !is {
		return Cron{}, fmt.Errorf("cron %q: want five fields such as '0 8 * * 1-5'", text)
	}
	if zone == "" || zone == "Local" {
		return Cron{}, errors.New("zone: want a name such as Europe/Berlin or UTC")
	}
	c := Cron{spec: spec}
	if c.zone, err = time.LoadLocation(zone); err != nil {
		return Cron{}, fmt.Errorf("zone %q: %w", zone, err)
	}
	const hours = 1<<24 - 1
	c.everyHour = spec.Hour&hours == hours
	spec.Location = time.UTC
	if c.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return Cron{}, fmt.Errorf("cron %q: no day matches it", text)
	}
	return c, nil
}

// Next returns the first time after t, in UTC, to the minute; the zero time if there is none within 9 years.
//
// The expression matches local times of the zone. If the clock is set forward and skips a time, Next returns the moment at which the clock
// is set. If it is set back and shows a time twice, Next returns the first of the two. The times of an expression that matches each hour
// have no gap and no repetition when the clock is set.
func (c Cron) Next(t time.Time) time.Time {
	if c.everyHour {
		in := *c.spec
		in.Location = c.zone
		next := in.Next(t)
		if next.IsZero() {
			return next
		}
		return next.UTC()
	}
	// The clock may have been set back before t, by some hours or a day: begin earlier, and skip times that are not after t.
	for local := localTime(t.In(c.zone)).Add(-25 * time.Hour); ; {
		if local = c.spec.Next(local); local.IsZero() {
			return local
		}
		if next := c.firstAt(local); next.After(t) {
			return next
		}
	}
}

// localTime returns the date and time that a clock in t's zone shows at t, as a time in UTC.
func localTime(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// firstAt returns the first time at which a clock of the zone shows local, or, if the clock skips local, the time at which it is set forward.
func (c Cron) firstAt(local time.Time) time.Time {
	// No zone is 26 hours off UTC, and no clock was set back by more than 24 hours at a time.
	early := local.Add(-26 * time.Hour)
	first := time.Time{}
	for at := early; at.Before(local.Add(26 * time.Hour)); {
		start, end := at.In(c.zone).ZoneBounds()
		_, offset := at.In(c.zone).Zone()
		candidate := local.Add(-time.Duration(offset) * time.Second)
		if (start.IsZero() || !candidate.Before(start)) && (end.IsZero() || candidate.Before(end)) {
			return candidate.UTC()
		}
		if !start.IsZero() && candidate.Before(start) && first.IsZero() && start.After(early) {
			first = start // the clock has not shown local before start, and shows a later time from start on
		}
		if end.IsZero() {
			break
		}
		at = end
	}
	return first.UTC()
}

// latest returns the times of c from next to now, but only the latest n of them. skipped reports whether next was left out. next is one of the
// times of c.
func (c Cron) latest(next, now time.Time, n int) (due []time.Time, skipped bool) {
	if next.After(now) || n < 1 {
		return nil, !next.After(now)
	}
	for span := time.Hour; ; span *= 2 {
		from := now.Add(-span)
		if whole := !from.After(next); whole {
			from = next.Add(-time.Nanosecond)
		}
		due = nil
		for at := c.Next(from); !at.IsZero() && !at.After(now); at = c.Next(at) {
			due = append(due, at)
		}
		if from.Before(next) || len(due) >= n {
			break
		}
	}
	due = slices.Clone(due[max(0, len(due)-n):])
	return due, len(due) == 0 || due[0].After(next)
}
