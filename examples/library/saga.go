package main

import (
	"time"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/saga"

	"github.com/troupe-go/troupe/examples/library/messages"
)

// definition returns the saga pickup: a book is lent and put into a locker. Without a free locker it is taken back.
func definition(codec envelope.Decoder) (*saga.Definition, error) {
	because := saga.Answer{Reason: "event.reason"}
	return saga.Define(saga.Spec{
		Saga: "pickup", Version: 1, Key: "loan_id",
		Data: map[string]saga.Type{
			"loan_id": saga.String, "reader": saga.String, "isbn": saga.String, "branch": saga.String, "locker": saga.Int,
		},
		Steps: []saga.Step{
			{
				Name: "lend",
				Command: saga.CommandOf[*messages.LendBook](codec, "loan", saga.Mapping{
					"loan_id": "data.loan_id", "reader": "data.reader", "isbn": "data.isbn",
				}),
				Success: []saga.Answer{saga.AnswerOf[*messages.BookLent](codec, saga.Answer{})},
				Failure: []saga.Answer{saga.AnswerOf[*messages.LoanRefused](codec, because)},
				Timeout: saga.Duration(5 * time.Minute),
				Compensation: &saga.Compensation{
					Command: saga.CommandOf[*messages.ReturnBook](codec, "loan", saga.Mapping{"loan_id": "data.loan_id"}),
					Success: []saga.Answer{saga.AnswerOf[*messages.BookReturned](codec, saga.Answer{})},
				},
			},
			{
				Name: "locker", Needs: []string{"lend"}, Pivot: true,
				Command: saga.CommandOf[*messages.AssignLocker](codec, "locker", saga.Mapping{
					"loan_id": "data.loan_id", "branch": "data.branch",
				}),
				Success: []saga.Answer{saga.AnswerOf[*messages.LockerAssigned](codec, saga.Answer{
					Set: saga.Mapping{"locker": "event.number"},
				})},
				Failure: []saga.Answer{saga.AnswerOf[*messages.NoLocker](codec, because)},
				Timeout: saga.Duration(5 * time.Minute),
			},
		},
		Completed: []saga.Emit{saga.EmitOf[*messages.PickupReady](codec, saga.Emit{
			Input: saga.Mapping{"loan_id": "data.loan_id", "locker": "data.locker"},
		})},
		Compensated: []saga.Emit{saga.EmitOf[*messages.PickupFailed](codec, saga.Emit{
			Failure: true, Input: saga.Mapping{"loan_id": "data.loan_id", "reason": "saga.reason"},
		})},
	})
}
