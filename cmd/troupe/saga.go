package main

import (
	"github.com/spf13/cobra"
)

func newSaga() *cobra.Command {
	saga := &cobra.Command{
		Use:     "saga",
		Short:   "Explore definitions of sagas",
		Example: "  troupe saga explore order.saga.json",
		Args:    cobra.NoArgs,
		RunE:    parent,
	}
	saga.AddCommand(newSagaExplore())
	return saga
}
