-- In one order, so that two that want the same do not wait for each other.
SELECT pg_advisory_xact_lock(@class::integer, h), current_setting('transaction_isolation')
FROM (SELECT DISTINCT hashtext(g) AS h FROM unnest(@names::text[]) AS g ORDER BY h) AS hashes
