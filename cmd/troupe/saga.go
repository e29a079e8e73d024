package main

import "github.com/spf13/cobra"

func newSaga() *cobra.Command {
	saga := &cobra.Command{
		Use:     "saga",
		Short:   "Work with sagas and their definitions",
		Example: "  troupe saga schema > saga.schema.json",
		Args:    cobra.NoArgs,
		RunE:    parent,
	}
	saga.AddCommand(newSagaSchema())
	return saga
}
