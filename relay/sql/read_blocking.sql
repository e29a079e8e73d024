-- Which rows others wait behind. While it is the same, none of the rows that waited may go out.
SELECT md5(coalesce(string_agg(position::text, ' ' ORDER BY position), ''))
FROM troupe.outbox_failures
WHERE status <> 'waiting'
