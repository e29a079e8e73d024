package main

import "github.com/spf13/cobra"

func newSaga() *cobra.Command {
	saga := &cobra.Command{
		Use:     "saga",
		Short:   "Prove, explore, write and operate sagas",
		Example: "  troupe saga verify order.saga.json",
		Args:    cobra.NoArgs,
		RunE:    parent,
	}
	saga.AddCommand(newSagaExplore())
	saga.AddCommand(newSagaFmt())
	saga.AddCommand(newSagaSchema())
	saga.AddCommand(newSagaVerify())
	return saga
}
