-- Reads the state of a mapped table. It returns no row before a relay has stored a state.
SELECT source, system_id, timeline, published::text, sweep::text, lsn::text, publication
FROM troupe.mapped_tables
WHERE name = @table
  AND system_id <> ''
