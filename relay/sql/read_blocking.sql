-- Returns a digest of the rows that others wait behind. While it is unchanged, no row that waited then may be published.
SELECT md5(coalesce(string_agg(position::text, ' ' ORDER BY position), ''))
FROM troupe.outbox_failures
WHERE status <> 'waiting'
