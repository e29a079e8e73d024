-- The position below which nothing is left, given that nothing new can appear up to @newest.
SELECT coalesce(min(position) - 1, @newest)
FROM troupe.outbox
WHERE position > @low
  AND position <= @newest
