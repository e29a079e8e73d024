package saga_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// The database of a hop was set back after the hop had answered. The hop handles the command again, and decides otherwise.

var (
	insured      = answer("insurance", "forward", "success", "Insured", nil)
	notBooked    = answer("hotel", "forward", "failure", "Full", nil)
	notCancelled = answer("hotel", "compensate", "failure", "TooLate", nil)
	notRented    = answer("car", "forward", "failure", "NoCar", nil)
)

func TestAStepThatWasRefusedAndTookEffectIsCompensated(t *testing.T) {
	s, fx := history(t, travelling(t), begun, bookedTrip, notRented, rented)
	require.Equal(t, saga.Compensating, s.Status, fx.Ignored)
	s, fx = history(t, travelling(t), begun, bookedTrip, notRented, rented, refused)
	require.Equal(t, saga.Compensating, s.Status)
	require.Empty(t, fx.Alert)
	require.Equal(t, saga.CompensateIntent, s.Steps[2].Phase)

	ended := []saga.Event{begun, bookedTrip, refused, rented, returned, cancelled, insured}
	s, fx = history(t, travelling(t), ended...)
	require.Equal(t, saga.Compensated, s.Status)
	require.Contains(t, fx.Refused, "insurance", fx.Ignored)
}

func TestAnOptionalStepThatWasRefusedAndTookEffectParksTheSaga(t *testing.T) {
	d := parse(t, travel, `"name":"insurance",`, `"name":"insurance","optional":true,`)
	s, fx := history(t, d, begun, refused, insured)
	require.Equal(t, saga.Parked, s.Status, fx.Ignored)
	require.Contains(t, fx.Alert, "insurance")
}

// In TestAStepThatAPersonResolvedIsNotContradicted a person has found out what the service did. An answer that says the same changes
// nothing, and neither does any answer to a step that the person has skipped, since the person may have done it by hand.
func TestAStepThatAPersonResolvedIsNotContradicted(t *testing.T) {
	d := travelling(t)
	exhausted := answer("hotel", "forward", "exhausted", "troupe.Exhausted", nil)
	_, fx := history(t, d, begun, exhausted, action(saga.ActSkip, "hotel"), notBooked)
	require.NotEmpty(t, fx.Ignored)
	no := action(saga.ActResolve, "hotel")
	no.Happened = false
	_, fx = history(t, d, begun, exhausted, no, notBooked)
	require.NotEmpty(t, fx.Ignored)
	nothing := bookedTrip
	nothing.Type = saga.NothingType
	_, fx = history(t, d, begun, exhausted, no, nothing)
	require.NotEmpty(t, fx.Ignored)
}

// In TestASuccessOfAStepThatAPersonResolvedAsNotHappenedIsADeadLetter the person looked before the command took effect: the hop was down,
// its dead letter is redriven, or its database was set back. The saga does not compensate the step, since the person may have undone
// it by hand.
func TestASuccessOfAStepThatAPersonResolvedAsNotHappenedIsADeadLetter(t *testing.T) {
	d := travelling(t)
	exhausted := answer("hotel", "forward", "exhausted", "troupe.Exhausted", nil)
	no := action(saga.ActResolve, "hotel")
	no.Happened = false
	for status, events := range map[saga.Status][]saga.Event{
		saga.Compensating: {begun, exhausted, no},
		saga.Compensated:  {begun, exhausted, no, refused},
	} {
		before, _ := history(t, d, events...)
		require.Equal(t, status, before.Status)
		s, fx := history(t, d, append(events, bookedTrip)...)
		require.Contains(t, fx.Refused, "step hotel", fx.Ignored)
		require.Equal(t, before, s)
	}
	irreversible := answer("insurance", "forward", "exhausted", "troupe.Exhausted", nil)
	no.Step = "insurance"
	s, fx := history(t, d, begun, irreversible, no, bookedTrip, cancelled, insured)
	require.Equal(t, saga.Compensated, s.Status)
	require.Contains(t, fx.Refused, "step insurance", fx.Ignored)
}

func TestAStepThatWasDoneAndIsRefusedIsInDoubt(t *testing.T) {
	d := travelling(t)
	lost := []saga.Event{begun, bookedTrip, notBooked}
	s, fx := history(t, d, lost...)
	require.Equal(t, saga.Parked, s.Status, fx.Ignored)
	require.Contains(t, fx.Alert, "hotel")
	require.Equal(t, []string{"hotel"}, saga.Stuck(d, s))
	_, fx = history(t, d, append(lost, notBooked)...)
	require.NotEmpty(t, fx.Ignored)
	_, fx = history(t, d, append(lost, action(saga.ActRetry, "hotel"))...)
	require.Equal(t, []string{"hotel/forward"}, sent(fx))
	s, fx = history(t, d, append(lost, action(saga.ActRetry, "hotel"), rented, insured, bookedTrip)...)
	require.Equal(t, saga.Completed, s.Status, fx.Ignored)
	_, fx = history(t, d, append(lost, action(saga.ActCompensate, ""), rented, insured, answer("car", "compensate", "success", "Returned", nil))...)
	require.Equal(t, []string{"hotel/compensate"}, sent(fx))
	require.True(t, fx.Commands[0].Doubt)
}

func TestAStepThatWasDoneAfterARetryAndIsRefusedIsInDoubt(t *testing.T) {
	again, lost := bookedTrip, notBooked
	again.Epoch, lost.Epoch = 1, 1
	exhausted := answer("hotel", "forward", "exhausted", "troupe.Exhausted", nil)
	s, fx := history(t, travelling(t), begun, exhausted, action(saga.ActRetry, "hotel"), again, lost)
	require.Equal(t, saga.Parked, s.Status, fx.Ignored)
	_, fx = history(t, travelling(t), begun, exhausted, action(saga.ActRetry, "hotel"), again, notBooked)
	require.NotEmpty(t, fx.Ignored, "it answers the first command")
}

func TestAStepThatWasDoneAndIsRefusedWhileTheSagaGoesBackIsInDoubt(t *testing.T) {
	d := travelling(t)
	_, fx := history(t, d, begun, bookedTrip, refused, notBooked, rented, returned)
	require.Equal(t, []string{"hotel/compensate"}, sent(fx))
	require.True(t, fx.Commands[0].Doubt)
}

func TestAnOptionalStepThatWasDoneAndIsRefusedParksTheSaga(t *testing.T) {
	d := parse(t, travel, `"name":"hotel",`, `"name":"hotel","optional":true,`)
	lost := []saga.Event{begun, bookedTrip, notBooked}
	s, fx := history(t, d, lost...)
	require.Equal(t, saga.Parked, s.Status, fx.Ignored)
	_, fx = history(t, d, append(lost, action(saga.ActResume, ""))...)
	require.Equal(t, []string{"hotel/compensate"}, sent(fx))
	require.True(t, fx.Commands[0].Doubt)
}

func TestARefusalOfAStepThatWasDoneIsADeadLetterOfAnEndedSaga(t *testing.T) {
	for status, events := range map[saga.Status][]saga.Event{
		saga.Completed:   {begun, bookedTrip, rented, insured, notBooked},
		saga.Compensated: {begun, bookedTrip, rented, refused, returned, cancelled, notBooked},
	} {
		s, fx := history(t, travelling(t), events...)
		require.Equal(t, status, s.Status)
		require.Contains(t, fx.Refused, "hotel", fx.Ignored)
	}
	_, fx := history(t, travelling(t), begun, refused, bookedTrip, notBooked)
	require.Contains(t, fx.Refused, "hotel", "its compensation has been sent: %s", fx.Ignored)
}

func TestACompensationThatWasDoneAndFailsIsLeftToAPerson(t *testing.T) {
	d := travelling(t)
	back := []saga.Event{begun, bookedTrip, rented, refused, returned}
	notReturned := answer("car", "compensate", "failure", "TooLate", nil)
	s, fx := history(t, d, append(back, notReturned)...)
	require.Equal(t, saga.Parked, s.Status, fx.Ignored)
	require.Equal(t, []string{"car"}, saga.Stuck(d, s))
	s, _ = history(t, d, append(back, notReturned, action(saga.ActRetry, "car"), cancelled, returned)...)
	require.Equal(t, saga.Compensated, s.Status)
	_, fx = history(t, d, append(back, cancelled, notCancelled)...)
	require.Contains(t, fx.Refused, "hotel", fx.Ignored)
}

// In TestACompensationThatIsLostIsADeadLetterOfACompletedSaga the saga's own database was set back: the step was late and was
// compensated before, and its answer comes in time now.
func TestACompensationThatIsLostIsADeadLetterOfACompletedSaga(t *testing.T) {
	done := []saga.Event{begun, bookedTrip, rented, insured}
	s, fx := history(t, travelling(t), append(done, cancelled)...)
	require.Equal(t, saga.Completed, s.Status)
	require.Contains(t, fx.Refused, "hotel", fx.Ignored)
	nothing := cancelled
	nothing.Type = saga.NothingType
	_, fx = history(t, travelling(t), append(done, nothing)...)
	require.NotEmpty(t, fx.Ignored, "nothing was undone")
}

// In TestARefusalOfAnotherCommandThanTheOneThatSucceededIsNoContradiction the first command is late, so that a person has it sent again.
// It succeeds after all. A worker in another language refuses the second one then, since it has done the step.
func TestARefusalOfAnotherCommandThanTheOneThatSucceededIsNoContradiction(t *testing.T) {
	exhausted := answer("hotel", "forward", "exhausted", "troupe.Exhausted", nil)
	second := notBooked
	second.Epoch = 1
	again := []saga.Event{begun, exhausted, action(saga.ActRetry, "hotel"), bookedTrip}
	s, fx := history(t, travelling(t), append(again, second)...)
	require.NotEmpty(t, fx.Ignored, fx.Alert)
	require.Equal(t, saga.Running, s.Status)
	_, fx = history(t, travelling(t), append(again, rented, insured, second)...)
	require.NotEmpty(t, fx.Ignored, "the saga has ended: %s", fx.Refused)
	s, _ = history(t, travelling(t), append(again, notBooked)...)
	require.Equal(t, saga.Parked, s.Status, "the command that succeeded is refused, as after a set back")

	notReturned := answer("car", "compensate", "failure", "TooLate", nil)
	given := answer("car", "compensate", "exhausted", "troupe.Exhausted", nil)
	other := notReturned
	other.Epoch = 1
	back := []saga.Event{begun, bookedTrip, rented, refused, given, action(saga.ActRetry, "car"), returned}
	s, fx = history(t, travelling(t), append(back, other)...)
	require.NotEmpty(t, fx.Ignored, fx.Alert)
	require.Equal(t, saga.Compensating, s.Status)
	_, fx = history(t, travelling(t), append(back, cancelled, other)...)
	require.NotEmpty(t, fx.Ignored, "the saga has ended: %s", fx.Refused)
	s, _ = history(t, travelling(t), append(back, notReturned)...)
	require.Equal(t, saga.Parked, s.Status, "the compensation that succeeded is refused, as after a set back")
}

// In TestACommandThatSucceededAndDidNothingSinceIsADeadLetter the hop's database was set back, and the command, which came again, waited on a retry
// topic. So the compensation came before it, and has undone an effect that the hop did not have any more.
func TestACommandThatSucceededAndDidNothingSinceIsADeadLetter(t *testing.T) {
	nothing := answer("hotel", "forward", "failure", saga.NothingType, nil)
	for _, all := range [][]saga.Event{
		{begun, bookedTrip, rented, refused, returned},
		{begun, bookedTrip, rented, refused, returned, cancelled},
	} {
		_, fx := history(t, travelling(t), append(all, nothing)...)
		require.Contains(t, fx.Refused, "hotel", fx.Ignored)
	}

	exhausted := answer("hotel", "forward", "exhausted", "troupe.Exhausted", nil)
	for _, kind := range []saga.Kind{saga.ActSkip, saga.ActResolve} {
		yes := action(kind, "hotel")
		yes.Happened = true
		_, fx := history(t, travelling(t), begun, exhausted, yes, rented, refused, returned, cancelled, nothing)
		require.NotEmpty(t, fx.Ignored, "a person has stated that it happened, and the dead letter is redriven: %s", fx.Refused)
	}
}
