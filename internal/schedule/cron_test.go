package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func at(t testing.TB, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return parsed
}

func TestNextOccurrences(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cron, zone, after string
		want              []string
	}{
		"working days":       {"0 8 * * 1-5", "UTC", "2026-11-27T08:00:00Z", []string{"2026-11-30T08:00:00Z", "2026-12-01T08:00:00Z"}},
		"a time of the zone": {"30 9 * * *", "Asia/Kolkata", "2026-11-26T00:00:00Z", []string{"2026-11-26T04:00:00Z"}},
		"a time that summer skips is the moment it begins": {"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"}},
		"a skipped time and the one at that moment are one": {"0,30 2,3 29 3 *", "Europe/Berlin", "2026-03-29T00:00:00Z",
			[]string{"2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z", "2027-03-29T00:00:00Z"}},
		"of a time that winter repeats the first": {"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}},
		"not once more between the two": {"30 2 * * *", "Europe/Berlin", "2026-10-25T00:45:00Z", []string{"2026-10-26T01:30:00Z"}},
		"each half hour goes on when summer begins": {"*/30 * * * *", "Europe/Berlin", "2026-03-29T00:15:00Z",
			[]string{"2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"}},
		"and when it ends": {"*/30 * * * *", "Europe/Berlin", "2026-10-24T23:45:00Z",
			[]string{"2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z"}},
		"each half hour of a day whose midnight is skipped": {"*/30 * * * 5", "Africa/Cairo", "2026-04-23T21:00:00Z",
			[]string{"2026-04-23T22:00:00Z", "2026-04-23T22:30:00Z", "2026-04-23T23:00:00Z"}},
		"each hour of a day that is an hour longer": {"0 * * * 0", "Europe/Berlin", "2026-10-25T00:00:00Z",
			[]string{"2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"}},
		"each minute of a day of which some are shown after the next has begun": {"*/30 * * * 6", "America/St_Johns", "2006-10-29T02:00:00Z",
			[]string{"2006-10-29T03:00:00Z", "2006-11-04T03:30:00Z"}},
		"a clock set forward at midnight":       {"0 0 * * *", "America/Santiago", "2026-09-05T12:00:00Z", []string{"2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"}},
		"a clock set back at midnight":          {"30 23 * * *", "America/Santiago", "2026-04-04T12:00:00Z", []string{"2026-04-05T02:30:00Z", "2026-04-06T03:30:00Z"}},
		"a clock set forward by half an hour":   {"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", []string{"2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"}},
		"a day that a zone has skipped":         {"0 12 * * *", "Pacific/Apia", "2011-12-29T23:00:00Z", []string{"2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"}},
		"February 29":                           {"0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", []string{"2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"}},
		"February 29, which 2100 does not have": {"0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", []string{"2104-02-29T00:00:00Z"}},
		"day 31, which not each month has":      {"0 0 31 * *", "UTC", "2026-01-31T00:00:00Z", []string{"2026-03-31T00:00:00Z", "2026-05-31T00:00:00Z"}},
		"either day, as crontab has it":         {"0 0 13 * 5", "UTC", "2026-11-06T00:00:00Z", []string{"2026-11-13T00:00:00Z", "2026-11-20T00:00:00Z", "2026-11-27T00:00:00Z", "2026-12-04T00:00:00Z", "2026-12-11T00:00:00Z", "2026-12-13T00:00:00Z"}},
		"a word":                                {"@daily", "America/New_York", "2026-11-26T12:00:00Z", []string{"2026-11-27T05:00:00Z"}},
		"seconds are no part of it":             {"* * * * *", "UTC", "2026-11-26T12:00:00.5Z", []string{"2026-11-26T12:01:00Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parsed, err := ParseCron(c.cron, c.zone)
			require.NoError(t, err)
			var got []string
			for next := at(t, c.after); len(got) < len(c.want); {
				next = parsed.Next(next)
				got = append(got, next.Format(time.RFC3339))
			}
			require.Equal(t, c.want, got)
		})
	}
}

// TestOccurrencesOnlyGoForward checks each occurrence of several years: it is after the one before, and the same from any time between.
func TestOccurrencesOnlyGoForward(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Apia"} {
		for _, text := range []string{"30 2 * * *", "0 0 * * *", "*/20 0-4 * * *", "59 23 * * 0,6"} {
			c, err := ParseCron(text, zone)
			require.NoError(t, err)
			end := at(t, "2013-01-01T00:00:00Z")
			for before := at(t, "2011-01-01T00:00:00Z"); before.Before(end); {
				next := c.Next(before)
				require.True(t, next.After(before), "%s %s: %s", text, zone, before)
				require.Equal(t, next, c.Next(before.Add(next.Sub(before)/2)), "%s %s: %s", text, zone, before)
				require.Equal(t, next, c.Next(next.Add(-time.Nanosecond)))
				before = next
			}
		}
	}
}

// TestAnHourlyExpressionGoesByTheHoursThatPass compares with the clock of each half hour, in zones that change it at midnight too.
func TestAnHourlyExpressionGoesByTheHoursThatPass(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Africa/Cairo", "America/Havana", "Asia/Beirut", "Australia/Lord_Howe", "Europe/Berlin"} {
		c, err := ParseCron("*/30 * * * 0,5", zone)
		require.NoError(t, err)
		at, end := at(t, "2025-12-31T23:59:00Z"), at(t, "2027-01-01T00:00:00Z")
		for half := at.Truncate(30 * time.Minute); half.Before(end); half = half.Add(30 * time.Minute) {
			if day := half.In(c.zone).Weekday(); half.After(at) && (day == time.Sunday || day == time.Friday) {
				require.Equal(t, half, c.Next(at), zone)
				at = half
			}
		}
	}
}

func TestTextsThatAreNoCronExpression(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ cron, zone, text string }{
		{"* * * *", "UTC", "cron"},
		{"0 0 31 2 *", "UTC", "no day matches it"},
		{"@every 1s", "UTC", "five fields"},
		{"TZ=Europe/Berlin 0 0 * * *", "UTC", "set by itself"},
		{"60 * * * *", "UTC", "cron"},
		{"0 0 0 * * *", "UTC", "cron"},
		{"", "UTC", "cron"},
		{"0 0 * * *", "Europe/Paries", "zone"},
		{"0 0 * * *", "", "want a name"},
		{"0 0 * * *", "Local", "want a name"},
	} {
		_, err := ParseCron(c.cron, c.zone)
		require.ErrorContains(t, err, c.text, "%s %s", c.cron, c.zone)
	}
}

func TestTheLatestMissedOccurrences(t *testing.T) {
	t.Parallel()
	c, err := ParseCron("* * * * *", "UTC")
	require.NoError(t, err)
	next := at(t, "2024-01-01T00:00:00Z")
	due, skipped := c.last(next, at(t, "2026-01-01T00:00:30Z"), 2) // a million occurrences
	require.True(t, skipped)
	require.Equal(t, []time.Time{at(t, "2025-12-31T23:59:00Z"), at(t, "2026-01-01T00:00:00Z")}, due)
	due, skipped = c.last(next, next, 3)
	require.False(t, skipped)
	require.Equal(t, []time.Time{next}, due)
	due, skipped = c.last(next, next.Add(2*time.Minute), 3)
	require.False(t, skipped)
	require.Len(t, due, 3)
	due, skipped = c.last(next, next.Add(-time.Second), 3)
	require.False(t, skipped)
	require.Empty(t, due)
}

// TestMissedOccurrencesOfFebruary29 checks a clock that was centuries ahead: 100 of them take longer than a time.Duration can hold.
func TestMissedOccurrencesOfFebruary29(t *testing.T) {
	t.Parallel()
	c, err := ParseCron("0 0 29 2 *", "UTC")
	require.NoError(t, err)
	next := at(t, "2028-02-29T00:00:00Z")
	due, skipped := c.last(next, at(t, "2420-01-01T00:00:00Z"), MaxCatchUp)
	require.False(t, skipped)
	require.Len(t, due, 95) // of 98 years that 4 divides, 2100, 2200 and 2300 have no such day
	require.Equal(t, next, due[0])
	require.Equal(t, at(t, "2416-02-29T00:00:00Z"), due[94])
	due, skipped = c.last(next, at(t, "2500-01-01T00:00:00Z"), MaxCatchUp)
	require.True(t, skipped)
	require.Len(t, due, MaxCatchUp)
}

// TestMembersWithTwoRulesOfAZone: during a rolling deploy the rules of a zone differ by an hour among members. Each day has one occurrence.
func TestMembersWithTwoRulesOfAZone(t *testing.T) {
	t.Parallel()
	var members [2]Cron
	for i, text := range []string{"0 2 * * *", "0 3 * * *"} {
		var err error
		members[i], err = ParseCron(text, "UTC")
		require.NoError(t, err)
	}
	for order := range 1 << 10 {
		s := Schedule{NextAt: at(t, "2026-11-01T02:00:00Z")}
		var days []int
		for turn := range 10 {
			turned := s.decide(members[order>>turn&1], s.NextAt)
			if s.NextAt = turned.next; !turned.run.IsZero() {
				require.False(t, turned.skipped)
				days = append(days, turned.run.Day())
			}
		}
		for i, day := range days {
			require.Equal(t, i+1, day, "%b", order)
		}
		require.GreaterOrEqual(t, len(days), 5, "%b", order)
	}
}
