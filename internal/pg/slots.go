package pg

// InvalidationSQL reads invalidation_reason from pg_replication_slots AS s. It is empty for a valid slot and before Postgres 17.
const InvalidationSQL = `coalesce(to_jsonb(s) ->> 'invalidation_reason', '')`

// Invalidation explains the value of InvalidationSQL for a slot whose wal_status is lost. cause continues "the slot was
// invalidated: ", and remedy prevents the next time.
func Invalidation(reason string) (cause, remedy string) {
	switch reason {
	case "idle_timeout": // Postgres 18 and newer
		return "nothing streamed it for longer than idle_replication_slot_timeout",
			"set idle_replication_slot_timeout to more than the longest pause of the relay, or to 0"
	case "rows_removed":
		return "while this server was a standby, its primary removed rows of the catalog that the slot needs",
			"set hot_standby_feedback = on on each standby"
	case "wal_level_insufficient":
		return "wal_level was below logical on the primary", "leave wal_level = logical on every server"
	case "", "wal_removed":
		return "the server has removed log that it needs", "raise max_slot_wal_keep_size, and find out why the relay did not publish"
	}
	return "the server names the reason " + reason, "look for invalidation_reason in the documentation of pg_replication_slots"
}
