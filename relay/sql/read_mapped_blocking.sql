-- As read_blocking.sql, with the position behind which the next rows will be recorded.
SELECT md5(coalesce(string_agg(position::text, ' ' ORDER BY position), '')),
       (SELECT coalesce(max(position), 0) FROM troupe.mapped_trouble) AS newest
FROM troupe.mapped_trouble
WHERE table_name = @table
  AND status <> 'waiting'
