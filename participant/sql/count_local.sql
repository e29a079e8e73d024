-- Counts the entries up to @last that were not tried. An entry that waits for its next try was tried, so it does not count. The entries of its key
-- behind it wait for it, and do not count either.
SELECT count(*)
FROM troupe.local_work AS w
WHERE consumer_group = @group
  AND ended_at IS NULL
  AND next_try IS NULL
  AND position <= @last
  AND NOT EXISTS (
    SELECT
    FROM troupe.local_work AS ahead
    WHERE ahead.consumer_group = w.consumer_group
      AND ahead.hold_key = w.hold_key
      AND ahead.ended_at IS NULL
      AND ahead.next_try IS NOT NULL
      AND ahead.position < w.position)
