package letterofcredit_test

import (
	"testing"
	"time"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/sagatest"
)

func reminders(t testing.TB) *sagatest.Fixture {
	t.Helper()
	_, reminder := definitions(t)
	return sagatest.New(t, reminder)
}

var reminderDue = sagatest.Emitted{Saga: "reminder/a-1", Type: "ReminderDue", Fields: sagatest.Fields{
	"application_id": "a-1", "applicant_id": "c-1", "amount_cents": 500,
}}

func TestAReminderIsScheduledWithItsPayload(t *testing.T) {
	t.Parallel()
	f := reminders(t).WhenPublished(submitted("a-1", 500)).ThenScheduled("reminder", 10*day)
	f.WhenTimePasses(3*day).ThenScheduled("reminder", 7*day).ThenNoEvents()
}

func TestAfterTenDaysOfSilenceThereIsAReminder(t *testing.T) {
	t.Parallel()
	f := reminders(t).Given(submitted("a-1", 500))
	f.WhenTimePasses(10*day - time.Second).ThenNoEvents().ThenDeadlinesMet()
	f.WhenTimePasses(time.Second).ThenDeadlinesMet("reminder").ThenEvents(reminderDue).ThenNoDeadlines().ThenActive(1)
	f.WhenTimePasses(100 * day).ThenNoEvents() // one reminder
	f.WhenPublished(decided("ApplicationApproved", "a-1")).ThenActive(0).ThenNoEvents()
}

func TestADecisionCancelsTheReminder(t *testing.T) {
	t.Parallel()
	for _, decision := range []string{"ApplicationApproved", "ApplicationDeclined"} {
		f := reminders(t).Given(submitted("a-1", 500), submitted("a-2", 500))
		f.WhenPublished(decided(decision, "a-1")).ThenStatus("reminder/a-1", saga.Completed).ThenActive(1)
		f.ThenScheduled("reminder", 10*day) // of a-2: a deadline is cancelled in its own saga only
		f.WhenPublished(decided(decision, "a-2")).ThenNoDeadlines()
		f.WhenTimePasses(10 * day).ThenDeadlinesMet().ThenNoEvents()
	}
}

// A person who gives it up cancels it too: there is no way out that leaves a deadline behind.
func TestAbandoningCancelsTheReminder(t *testing.T) {
	t.Parallel()
	f := reminders(t).Given(submitted("a-1", 500))
	f.WhenActs("reminder/a-1", saga.Event{Kind: saga.ActAbandon, Actor: "ann", Reason: "by phone"}).ThenNoDeadlines().ThenActive(0)
	f.WhenTimePasses(10 * day).ThenDeadlinesMet().ThenNoEvents()
}

// An application that is not approved automatically still needs a clerk, and the second process sends its reminder.
func TestTheReminderOutlivesTheAutomaticPath(t *testing.T) {
	t.Parallel()
	f := sagatest.New(t, both(t)...).WhenPublished(submitted("a-1", 500)).ThenActive(2)
	f.WhenPublished(credit("c-1", false)).ThenEvents(byHand("applicant credit")).ThenActive(1)
	f.WhenTimePasses(10 * day).ThenEvents(reminderDue).ThenActive(1)
	f.WhenPublished(decided("ApplicationDeclined", "a-1")).ThenActive(0).ThenNoDeadlines()
}

// The automatic approval's own answer is the event that ends the reminder.
func TestAnAutomaticApprovalEndsTheReminder(t *testing.T) {
	t.Parallel()
	f := sagatest.New(t, both(t)...).Given(submitted("a-1", 500), value("a-1", true), legality("p-1", true), credit("c-1", true))
	f.WhenPublished(sagatest.Success("approve", "ApplicationApproved", sagatest.Fields{"application_id": "a-1"})).
		ThenStatus("approval/a-1", saga.Completed).ThenStatus("reminder/a-1", saga.Completed).ThenNoDeadlines()
	f.WhenTimePasses(10 * day).ThenNoEvents()
}

func both(t testing.TB) []*saga.Definition {
	t.Helper()
	approval, reminder := definitions(t)
	return []*saga.Definition{approval, reminder}
}
