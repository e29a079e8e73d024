package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/sagatest"
	"github.com/troupe-go/troupe/testkit"
)

func defined(t *testing.T) *saga.Definition {
	codec, err := newCodec(t.Context(), testkit.Registry(t))
	require.NoError(t, err)
	d, err := definition(codec)
	require.NoError(t, err)
	return d
}

func TestThePickupIsSound(t *testing.T) { sagatest.Verify(t, defined(t)) }

func TestABookWithoutALockerIsTakenBack(t *testing.T) {
	f := sagatest.New(t, defined(t))
	f.WhenStarted("pickup", sagatest.Fields{"loan_id": "l-1", "reader": "ann", "isbn": "978-1", "branch": "north"})
	f.ThenCommands(sagatest.Command{Type: "library.loan.LendBook"})
	f.Given(sagatest.Success("lend", "library.loan.BookLent", nil))
	f.WhenPublished(sagatest.Failure("locker", "library.loan.NoLocker", sagatest.Fields{"reason": "no free locker"}))
	f.ThenCommands(sagatest.Command{Type: "library.loan.ReturnBook", Fields: sagatest.Fields{"loan_id": "l-1"}})
	f.WhenPublished(sagatest.Success("lend", "library.loan.BookReturned", nil))
	f.ThenEvents(sagatest.Emitted{Type: "library.loan.PickupFailed", Outcome: "failure"}).ThenActive(0)
}
