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

// searchYears limits the search for the next time. February 29 comes twice in 8 years at least, but for 2096 to 2104.
const searchYears = 9

// maxCron limits the length of a cron expression, in bytes.
const maxCron = 200

var parser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom).
	WithMaxSearchYears(searchYears)

// A Cron gives the times of a cron expression in a time zone. It is safe for concurrent use.
type Cron struct {
	spec *cron.SpecSchedule // in UTC
	zone *time.Location
	// hourly is true if the expression matches each hour.
	hourly bool
}

// ParseCron parses an expression of five fields (minute, hour, day of the month, month, day of the week), or one such as @daily. If
// neither day is *, either of them is enough, as in crontab(5). zone is a name of the tz database, such as Europe/Berlin.
func ParseCron(text, zone string) (Cron, error) {
	if len(text) > maxCron {
		return Cron{}, fmt.Errorf("cron: %d bytes: at most %d", len(text), maxCron)
	}
	if strings.Contains(text, "=") || strings.HasPrefix(text, "@every") {
		return Cron{}, fmt.Errorf("cron %q: want five fields such as '0 8 * * 1-5'; the time zone is set by itself", text)
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
	c.hourly = spec.Hour&hours == hours
	spec.Location = time.UTC
	if c.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return Cron{}, fmt.Errorf("cron %q: no day matches it", text)
	}
	return c, nil
}

// Next returns the first time after t, in UTC, to the minute; the zero time if there is none within 9 years.
//
// The expression matches the time on a clock of the zone. A time that the clock skips, as when summer begins, is the moment at
// which the clock is set forward. Of a time that the clock shows twice, only the first is one. An expression that matches each hour
// is evaluated without gap or repetition: it goes by the hours that pass.
func (c Cron) Next(t time.Time) time.Time {
	if c.hourly {
		return c.nextHourly(t)
	}
	wall := clockOf(t.In(c.zone))
	if start, _ := t.In(c.zone).ZoneBounds(); t.Sub(start) < maxShift {
		wall = wall.Add(-maxShift) // the clock was set back or forward, by a day as in Samoa in 2011: pass over times that are not after t
	}
	for {
		if wall = c.spec.Next(wall); wall.IsZero() {
			return wall
		}
		if next := c.moment(wall); next.After(t) {
			return next
		}
	}
}

// nextHourly is Next for an expression that matches each hour. Between two changes of the clock it searches in the times that the clock
// shows: SpecSchedule's search in a zone passes over a day whose midnight the clock skips.
func (c Cron) nextHourly(t time.Time) time.Time {
	for at, wall := t, clockOf(t.In(c.zone)); ; {
		_, end := at.In(c.zone).ZoneBounds()
		_, offset := at.In(c.zone).Zone()
		if wall = c.spec.Next(wall); wall.IsZero() {
			return wall
		}
		next := wall.Add(-time.Duration(offset) * time.Second)
		if end.IsZero() || next.Before(end) {
			return next
		}
		at, wall = end, clockOf(end.In(c.zone)).Add(-time.Nanosecond) // the moment of the change counts
	}
}

// clockOf returns the date and time that a clock shows at t, as if it were in UTC.
func clockOf(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// moment returns the first moment at which a clock of the zone shows wall, or, if it skips wall, the moment at which it does so.
func (c Cron) moment(wall time.Time) time.Time {
	// No clock is 26 hours off UTC. The clock shows wall, or more, from then on; it is set back by less than 24 hours at a time.
	early := wall.Add(-26 * time.Hour)
	first := time.Time{}
	for at := early; at.Before(wall.Add(26 * time.Hour)); {
		start, end := at.In(c.zone).ZoneBounds()
		_, offset := at.In(c.zone).Zone()
		candidate := wall.Add(-time.Duration(offset) * time.Second)
		if (start.IsZero() || !candidate.Before(start)) && (end.IsZero() || candidate.Before(end)) {
			return candidate.UTC()
		}
		if !start.IsZero() && candidate.Before(start) && first.IsZero() && start.After(early) {
			first = start // the clock had not shown wall before start, and shows more from then on
		}
		if end.IsZero() {
			break
		}
		at = end
	}
	return first.UTC()
}

// maxShift limits by how much a change of a zone's rules moves a time: a zone may move to the other side of the date line.
const maxShift = 25 * time.Hour

// byTheRulesOfNow returns next, or, if it is none of the times of c since the zone's rules have changed, the time of c that is nearest to
// it: the same occurrence.
func (c Cron) byTheRulesOfNow(next time.Time) time.Time {
	if later := c.Next(next.Add(-time.Nanosecond)); !later.Equal(next) {
		nearest := later
		distance := maxShift
		if !later.IsZero() {
			distance = min(distance, later.Sub(next))
		}
		for at := c.Next(next.Add(-distance)); !at.IsZero() && at.Before(next); at = c.Next(at) {
			nearest = at
		}
		return nearest
	}
	return next
}

// longestSpan limits the part of the past that last searches before it searches all of it. Twice this span still fits in a time.Duration.
const longestSpan = 140 * 365 * 24 * time.Hour

// last returns the latest times, at most n, from next on that are not after now, and reports whether next was left out. next is one of the
// times of c.
func (c Cron) last(next, now time.Time, n int) (due []time.Time, skipped bool) {
	if next.After(now) || n < 1 {
		return nil, !next.After(now)
	}
	for span := time.Hour; ; span *= 2 {
		from := now.Add(-span)
		if whole := span > longestSpan || !from.After(next); whole {
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
