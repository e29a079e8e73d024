-- As read_blocking.sql, for a mapped table, with the highest position: rows that are recorded later have higher positions.
SELECT md5(coalesce(string_agg(position::text, ' ' ORDER BY position), '')),
       (SELECT coalesce(max(position), 0) FROM troupe.mapped_failures) AS newest
FROM troupe.mapped_failures
WHERE table_name = @table
  AND status <> 'waiting'
