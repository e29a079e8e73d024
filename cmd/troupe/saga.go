package main

import (
	"github.com/spf13/cobra"
)

func newSaga() *cobra.Command {
	saga := &cobra.Command{
		Use:     "saga",
		Short:   "Prove and write definitions of sagas",
		Example: "  troupe saga verify order.saga.json",
		Args:    cobra.NoArgs,
		RunE:    parent,
	}
	saga.AddCommand(newSagaVerify())
	saga.AddCommand(newSagaFmt())
	return saga
}
