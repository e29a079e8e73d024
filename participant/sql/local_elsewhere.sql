-- Returns the topics of @consumed that are local for other groups and not for @group, with the names of those groups.
SELECT topic, string_agg(consumer_group, ', ' ORDER BY consumer_group)
FROM troupe.local_topics
WHERE topic = ANY (@consumed::text[])
GROUP BY topic
HAVING NOT bool_or(consumer_group = @group)
ORDER BY topic
