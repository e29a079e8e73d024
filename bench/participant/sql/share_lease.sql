SELECT pg_advisory_xact_lock_shared($1, $2), set_config('idle_in_transaction_session_timeout', $3, true)
