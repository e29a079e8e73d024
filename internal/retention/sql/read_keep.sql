-- The kinds of records that are not kept for ever, each with the time before which a closed record is removed.
SELECT kind, clock_timestamp() - keep
FROM troupe.retention
WHERE keep IS NOT NULL
