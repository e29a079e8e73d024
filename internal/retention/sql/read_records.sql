-- When a kind that is kept for ever was passed over last does not matter.
SELECT coalesce(sum(removed) FILTER (WHERE kind = 'sagas'), 0)::bigint, coalesce(sum(removed) FILTER (WHERE kind = 'dead letters'), 0)::bigint,
       coalesce(sum(removed) FILTER (WHERE kind = 'repairs'), 0)::bigint,
       CASE WHEN bool_and(passed_at IS NOT NULL OR keep IS NULL) THEN min(passed_at) FILTER (WHERE keep IS NOT NULL) END
FROM troupe.retention
