-- Records rows that could not be published, if the term is still ours. A wait of null parks the row. Attempts of 0 mean that the row waits
-- behind another one; if it has a record already, the record stays as it is, since a restarted stream delivers such rows again.
-- first_failed_at is the time of the first attempt, not the time at which the row began to wait.
--
-- The records are on disk before the statement returns, whatever the role's synchronous_commit is: next the checkpoint, and then the slot,
-- passes these rows.
WITH lease AS MATERIALIZED (
  SELECT term, set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'local'
                                                ELSE current_setting('synchronous_commit') END, true)
  FROM troupe.relay_leases
  WHERE shard = @shard
    AND holder = @holder
    AND term = @term
    AND expires_at > clock_timestamp()
  FOR SHARE
), noted AS (
  INSERT INTO troupe.outbox_failures AS t
    (position, id, topic, order_key, status, attempts, max_attempts, next_try, last_error)
  SELECT f.position, f.id, f.topic, f.order_key,
         CASE WHEN f.attempts = 0 THEN 'waiting' WHEN f.wait IS NULL THEN 'parked' ELSE 'retrying' END,
         f.attempts, f.max_attempts, clock_timestamp() + f.wait, f.last_error
  FROM unnest(@positions::bigint[], @ids::uuid[], @topics::text[], @order_keys::bytea[], @attempts::int[],
              @max_attempts::int[], @waits::interval[], @errors::text[])
       AS f (position, id, topic, order_key, attempts, max_attempts, wait, last_error)
  WHERE EXISTS (SELECT FROM lease)
  ON CONFLICT (position) DO UPDATE
  SET id              = excluded.id,
      topic           = excluded.topic,
      order_key       = excluded.order_key,
      status          = excluded.status,
      attempts        = excluded.attempts,
      max_attempts    = excluded.max_attempts,
      next_try        = excluded.next_try,
      last_error      = excluded.last_error,
      first_failed_at = CASE WHEN excluded.attempts <= 1 THEN clock_timestamp() ELSE t.first_failed_at END
  WHERE excluded.attempts > 0
     OR t.id <> excluded.id
)
SELECT count(*) AS held
FROM lease
