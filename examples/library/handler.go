package main

import (
	"context"
	"database/sql"
	_ "embed" // the tables
	"errors"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"

	"github.com/troupe-go/troupe/examples/library/db"
	"github.com/troupe-go/troupe/examples/library/messages"
)

// The hops of the flow library; their topics are named after them. The saga's coordinator is pickup.
var (
	loan   = topics.MustHop("library", "loan")
	locker = topics.MustHop("library", "locker")
	pickup = topics.MustHop("library", "pickup")
)

// tables are this service's own.
//
//go:embed schema.sql
var tables string

// lend takes a copy of a book and writes the loan, or refuses.
func lend(ctx context.Context, tx *sql.Tx, c participant.Command[*messages.LendBook]) (participant.Outcome, error) {
	q := db.New(tx)
	left, err := q.TakeCopy(ctx, c.Body.GetIsbn())
	if errors.Is(err, sql.ErrNoRows) {
		return participant.Refuse(&messages.LoanRefused{Reason: "no free copy of " + c.Body.GetIsbn()}), nil
	}
	if err != nil {
		return participant.Outcome{}, err
	}
	err = q.AddLoan(ctx, db.AddLoanParams{LoanID: c.Body.GetLoanId(), Reader: c.Body.GetReader(), Isbn: c.Body.GetIsbn()})
	return participant.Succeed(&messages.BookLent{LoanId: c.Body.GetLoanId(), Left: left}), err
}

// takeBack undoes lend. It has nothing to do if the book was never lent.
func takeBack(ctx context.Context, tx *sql.Tx, c participant.Command[*messages.ReturnBook]) (participant.Outcome, error) {
	q := db.New(tx)
	isbn, err := q.ReturnLoan(ctx, c.Body.GetLoanId())
	switch {
	case errors.Is(err, sql.ErrNoRows):
		err = nil
	case err == nil:
		err = q.PutCopyBack(ctx, isbn)
	}
	return participant.Succeed(&messages.BookReturned{LoanId: c.Body.GetLoanId()}), err
}

// assign reserves the first free locker of a branch, or refuses.
func assign(ctx context.Context, tx *sql.Tx, c participant.Command[*messages.AssignLocker]) (participant.Outcome, error) {
	number, err := db.New(tx).AssignLocker(ctx, db.AssignLockerParams{
		LoanID: sql.NullString{String: c.Body.GetLoanId(), Valid: true}, Branch: c.Body.GetBranch(),
	})
	if errors.Is(err, sql.ErrNoRows) {
		return participant.Refuse(&messages.NoLocker{Reason: "no free locker in " + c.Body.GetBranch()}), nil
	}
	return participant.Succeed(&messages.LockerAssigned{LoanId: c.Body.GetLoanId(), Number: number}), err
}
