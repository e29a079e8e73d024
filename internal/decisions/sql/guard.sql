-- Takes the locks in the order of their hashes, so that two transactions do not deadlock. Returns the isolation level, which the caller
-- checks.
SELECT pg_advisory_xact_lock(@class::integer, h), current_setting('transaction_isolation')
FROM (SELECT DISTINCT hashtext(g) AS h FROM unnest(@names::text[]) AS g ORDER BY h) AS hashes
