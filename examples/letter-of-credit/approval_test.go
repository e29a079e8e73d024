package letterofcredit_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	letterofcredit "github.com/troupe-go/troupe/examples/letter-of-credit"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/sagatest"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func definitions(t testing.TB) (approval, reminder *saga.Definition) {
	t.Helper()
	defs, err := letterofcredit.Definitions()
	require.NoError(t, err)
	return defs[0], defs[1]
}

func approvals(t testing.TB) *sagatest.Fixture {
	t.Helper()
	approval, _ := definitions(t)
	return sagatest.New(t, approval)
}

const day = 24 * time.Hour

// submitted is an application for so much, by applicant c-1, about product p-1.
func submitted(id string, cents int) sagatest.Message {
	return sagatest.Event("application", "ApplicationSubmitted", id, sagatest.Fields{
		"application_id": id, "amount_cents": cents, "applicant_id": "c-1", "product_id": "p-1",
	})
}

func value(id string, favourable bool) sagatest.Message {
	return sagatest.Event("product", "ProductValueAssessed", id, sagatest.Fields{"favourable": favourable})
}

// The product's legality and the applicant's credit are assessed by services that never heard of applications.
func legality(product string, favourable bool) sagatest.Message {
	return sagatest.Event("legal", "ProductLegalityAssessed", product, sagatest.Fields{
		"product_id": product, "favourable": favourable,
	})
}

func credit(applicant string, favourable bool) sagatest.Message {
	return sagatest.Event("credit", "ApplicantCreditAssessed", applicant, sagatest.Fields{
		"applicant_id": applicant, "favourable": favourable,
	})
}

func decided(event, id string) sagatest.Message {
	return sagatest.Event("application", event, id, sagatest.Fields{"application_id": id})
}

var approve = sagatest.Command{
	Step: "approve", Operation: "forward", Hop: "application", Type: "ApproveApplication",
	Fields: sagatest.Fields{"application_id": "a-1"},
}

// byHand returns the event which states that a clerk must decide.
func byHand(reason string) sagatest.Emitted {
	return sagatest.Emitted{Type: "ManualApprovalNeeded", Fields: sagatest.Fields{"application_id": "a-1", "reason": reason}}
}

// orders are all orders of ms.
func orders(ms ...sagatest.Message) (all [][]sagatest.Message) {
	if len(ms) == 0 {
		return [][]sagatest.Message{nil}
	}
	for i := range ms {
		for _, rest := range orders(slices.Delete(slices.Clone(ms), i, i+1)...) {
			all = append(all, append([]sagatest.Message{ms[i]}, rest...))
		}
	}
	return all
}

func TestAJoinOfThreeInAnyOrder(t *testing.T) {
	t.Parallel()
	for _, order := range orders(value("a-1", true), legality("p-1", true), credit("c-1", true)) {
		for _, again := range []int{1, 2} { // once, and each twice
			f := approvals(t).Given(submitted("a-1", 999_999))
			for range again {
				f.WhenPublished(order[0]).ThenNoCommands()
			}
			for range again {
				f.WhenPublished(order[1]).ThenNoCommands()
			}
			f.WhenPublished(order[2]).ThenCommands(approve).ThenNoEvents()
			for range again - 1 {
				f.WhenPublished(order...).ThenNoCommands()
			}
			f.ThenActive(1).WhenPublished(sagatest.Success("approve", "ApplicationApproved", nil)).
				ThenNoCommands().ThenNoEvents().ThenActive(0).ThenStatus("approval/a-1", saga.Completed)
		}
	}
}

// An assessment may come before the application: it is kept until the saga is there.
func TestAssessmentsBeforeTheApplicationCount(t *testing.T) {
	t.Parallel()
	for _, order := range orders(submitted("a-1", 999_999), value("a-1", true), legality("p-1", true), credit("c-1", true)) {
		approvals(t).Given(order[:3]...).WhenPublished(order[3]).ThenCommands(approve).ThenActive(1)
	}
}

// Only approval.saga.json has the limit: amounts below USD 10,000 are approved automatically, USD 10,000 is not.
func TestTheBoundaryIsTenThousand(t *testing.T) {
	t.Parallel()
	for cents, automatic := range map[int]bool{0: true, 1: true, 999_999: true, 1_000_000: false, 1_000_001: false} {
		f := approvals(t).WhenPublished(submitted("a-1", cents))
		if automatic {
			f.ThenNoEvents().ThenActive(1)
			f.WhenPublished(value("a-1", true), legality("p-1", true), credit("c-1", true)).ThenCommands(approve)
			continue
		}
		f.ThenEvents(byHand("USD 10,000 or more")).ThenActive(0)
		f.WhenPublished(value("a-1", true), legality("p-1", true), credit("c-1", true)).ThenNoCommands().ThenNoEvents()
	}
}

func TestOneSagaForEachApplication(t *testing.T) {
	t.Parallel()
	f := approvals(t).Given(submitted("a-1", 500), submitted("a-2", 700)).ThenActive(2)
	f.WhenPublished(submitted("a-1", 900)).ThenNothing().ThenActive(2) // it was submitted before
	f.ThenData("approval/a-1", sagatest.Fields{"amount_cents": 500})
	f.WhenPublished(value("a-2", true)).ThenData("approval/a-2", sagatest.Fields{"value_favourable": true})
	_, set := f.State("approval/a-1").Data["value_favourable"]
	require.False(t, set)
}

func TestTheApplicationStartsIt(t *testing.T) {
	t.Parallel()
	f := approvals(t).WhenPublished(value("a-1", true)).ThenActive(0)
	f.WhenPublished(decided("ApplicationDeclined", "a-1")).ThenActive(0)
	f.WhenPublished(submitted("a-1", 500)).ThenActive(1).ThenNoCommands()
}

// One assessment of an applicant is for all of his applications, and of no other's.
func TestAnEventFindsItsSagasByAnyProperty(t *testing.T) {
	t.Parallel()
	other := submitted("a-3", 500)
	other.Fields["applicant_id"], other.Fields["product_id"] = "c-3", "p-3"
	f := approvals(t).Given(submitted("a-1", 500), submitted("a-2", 700), other)
	f.WhenPublished(credit("c-1", false)).ThenActive(1).ThenStatus("approval/a-3", saga.Running)
	f.WhenPublished(legality("p-3", true)).ThenData("approval/a-3", sagatest.Fields{"legality_favourable": true})
}

// It ends by its declaration as soon as a condition holds, and by what a command is answered.
func TestItEndsAtOnceWhenOneIsNotFavourable(t *testing.T) {
	t.Parallel()
	for reason, bad := range map[string]sagatest.Message{
		"product value": value("a-1", false), "product legality": legality("p-1", false), "applicant credit": credit("c-1", false),
	} {
		f := approvals(t).Given(submitted("a-1", 500))
		f.WhenPublished(bad).ThenEvents(byHand(reason)).ThenNoCommands().ThenActive(0).ThenStatus("approval/a-1", saga.Completed)
		require.Equal(t, reason, f.State("approval/a-1").Reason)
		// Later events are ignored.
		f.WhenPublished(value("a-1", true), legality("p-1", true), credit("c-1", true), submitted("a-1", 500)).
			ThenNothing().ThenNoCommands().ThenNoEvents().ThenActive(0)
	}
}

// The application's service may refuse the approval, or exhaust its attempts.
func TestARefusedApprovalNeedsAPerson(t *testing.T) {
	t.Parallel()
	all := []sagatest.Message{submitted("a-1", 500), value("a-1", true), legality("p-1", true), credit("c-1", true)}
	f := approvals(t).Given(all...)
	f.WhenPublished(sagatest.Failure("approve", "ApprovalRefused", sagatest.Fields{"reason": "withdrawn"})).
		ThenEvents(byHand("withdrawn")).ThenStatus("approval/a-1", saga.Compensated)

	f = approvals(t).Given(all...)
	f.WhenPublished(sagatest.Exhausted("approve", "no connection")).ThenStatus("approval/a-1", saga.Parked).ThenActive(1)
	f.WhenActs("approval/a-1", saga.Event{Kind: saga.ActResume, Actor: "ann"}).ThenRefused("retry, skip or resolve it")
	f.WhenActs("approval/a-1", saga.Event{Kind: saga.ActRetry, Step: "approve", Actor: "ann"}).ThenCommands(approve)
	f.WhenPublished(sagatest.Success("approve", "ApplicationApproved", nil)).ThenStatus("approval/a-1", saga.Completed)
}

// The variables of a saga survive as JSON; it names hops and holds no reference to them.
func TestItsFieldsArePersisted(t *testing.T) {
	t.Parallel()
	approval, _ := definitions(t)
	f := approvals(t).Given(submitted("a-1", 500), value("a-1", true))
	s := f.State("approval/a-1")
	require.Equal(t, map[string]any{
		"application_id": "a-1", "amount_cents": int64(500), "applicant_id": "c-1", "product_id": "p-1", "value_favourable": true,
	}, s.Data)
	require.Equal(t, approval.Hash(), s.Definition)
	require.Equal(t, []string{"application", "credit", "legal", "product"}, approval.Hops())
}

func TestTheAutomaticApprovalHasNoDeadline(t *testing.T) {
	t.Parallel()
	approvals(t).Given(submitted("a-1", 500)).WhenTimePasses(100 * day).ThenNoDeadlines().ThenActive(1)
}
