-- Counts the entries up to @last that have not ended, without the entries that were handled once and wait for their next try.
SELECT count(*)
FROM troupe.local_work
WHERE consumer_group = @group
  AND ended_at IS NULL
  AND next_try IS NULL
  AND position <= @last
