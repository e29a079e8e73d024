package main

import "github.com/spf13/cobra"

func newSaga() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "saga",
		Short: "Verify, explore and operate sagas",
		Long: `saga verifies definitions before they run, and operates running sagas. The operating commands work on the
database of the coordinator's service (--database-url or DATABASE_URL). A parked saga waits for an operator:
show prints the reason, draws the saga's state, and lists the possible actions. Every action is an entry of
the saga's log with the operator's name and reason; --dry-run prints its effect without doing it.`,
		Example: `  troupe saga verify order.saga.json
  troupe saga start order o-1001 --json '{"customer_id": "c-7"}' --reason 'ticket 4711: taken on the phone' --dry-run
  troupe saga list --status parked
  troupe saga show order/o-1001
  troupe saga retry order/o-1001 --reason 'the bank is back' --dry-run`,
	},
		newSagaExplore(), newSagaSchema(), newSagaVerify(), newSagaStart(), newSagaList(),
		newSagaShow(), newSagaQuestions(), newSagaAnswer(), newSagaRetry(), newSagaSkip(),
		newSagaResolve(), newSagaCompensate(), newSagaCancel(), newSagaResume(), newSagaSet(),
		newSagaAbandon(), newSagaLocks(), newSagaReplay(), newSagaMigrate(), newSagaFixture(),
		newSagaDiff())
}
