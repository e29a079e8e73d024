-- As record_failures.sql, for a mapped table: it also stores the row itself, since its table need not keep it.
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
  INSERT INTO troupe.mapped_failures AS t
    (table_name, id, event_id, topic, order_key, status, attempts, max_attempts, next_try, last_error, row, commit_lsn,
     commit_row)
  SELECT @table, f.id, f.event_id, f.topic, f.order_key,
         CASE WHEN f.attempts = 0 THEN 'waiting' WHEN f.wait IS NULL THEN 'parked' ELSE 'retrying' END,
         f.attempts, f.max_attempts, clock_timestamp() + f.wait, f.last_error, f.row,
         f.commit_lsn::pg_lsn, f.commit_row
  FROM unnest(@ids::uuid[], @event_ids::text[], @topics::text[], @order_keys::bytea[], @attempts::int[],
              @max_attempts::int[], @waits::interval[], @errors::text[], @rows::jsonb[],
              @commits::text[], @commit_rows::bigint[])
       WITH ORDINALITY AS f (id, event_id, topic, order_key, attempts, max_attempts, wait, last_error, row, commit_lsn, commit_row, n)
  WHERE EXISTS (SELECT FROM lease)
  ORDER BY f.n
  ON CONFLICT (table_name, id) DO UPDATE
  SET topic           = excluded.topic,
      order_key       = excluded.order_key,
      status          = excluded.status,
      attempts        = excluded.attempts,
      max_attempts    = excluded.max_attempts,
      next_try        = excluded.next_try,
      last_error      = excluded.last_error,
      first_failed_at = CASE WHEN excluded.attempts <= 1 THEN clock_timestamp() ELSE t.first_failed_at END
  WHERE excluded.attempts > 0
)
SELECT count(*) AS held
FROM lease
