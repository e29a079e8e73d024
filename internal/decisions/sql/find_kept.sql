-- Returns the events that are kept for a saga: the ones of some types, or all. find_stash.sql explains the type.
SELECT saga, variable, value, event, saga_id, shared, position
FROM troupe.saga_stash AS s
WHERE saga_id = @id
  AND saga_id <> '' -- as the index
  AND position > @after
  AND (@prefixes::text[] IS NULL
       OR EXISTS (
         SELECT
         FROM unnest(@prefixes::text[]) AS w (prefix)
         WHERE CASE WHEN s.message_id LIKE 'sha256:%' THEN concat(s.event ->> 'hop', '/', s.event ->> 'type', '/') = w.prefix
                    ELSE starts_with(s.message_id, w.prefix) END))
ORDER BY position
LIMIT @most::bigint
