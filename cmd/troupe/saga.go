package main

import "github.com/spf13/cobra"

func newSaga() *cobra.Command {
	saga := &cobra.Command{
		Use:   "saga",
		Short: "Prove, explore, write and operate sagas",
		Long: `saga proves definitions before they run, and operates what runs. Operating works on the database of a
service that decides (--database or DATABASE_URL). A parked saga waits for a person: show says why, draws
where it is, and names what can be done. Every action is an entry of the saga's log, with who did it and
why, and --dry-run says beforehand what it would do.`,
		Example: `  troupe saga verify order.saga.json
  troupe saga start order o-1001 --json '{"customer_id": "c-7"}' --reason 'ticket 4711: taken on the phone' --dry-run
  troupe saga list --status parked
  troupe saga show order/o-1001
  troupe saga retry order/o-1001 --reason 'the bank is back' --dry-run`,
		Args: cobra.NoArgs,
		RunE: parent,
	}
	saga.AddCommand(newSagaExplore())
	saga.AddCommand(newSagaFmt())
	saga.AddCommand(newSagaSchema())
	saga.AddCommand(newSagaVerify())
	saga.AddCommand(newSagaStart())
	saga.AddCommand(newSagaList())
	saga.AddCommand(newSagaShow())
	saga.AddCommand(newSagaRetry())
	saga.AddCommand(newSagaSkip())
	saga.AddCommand(newSagaResolve())
	saga.AddCommand(newSagaCompensate())
	saga.AddCommand(newSagaResume())
	saga.AddCommand(newSagaSet())
	saga.AddCommand(newSagaAbandon())
	saga.AddCommand(newSagaLocks())
	saga.AddCommand(newSagaReplay())
	saga.AddCommand(newSagaMigrate())
	saga.AddCommand(newSagaFixture())
	saga.AddCommand(newSagaDiff())
	return saga
}
