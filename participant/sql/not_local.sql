-- Returns the topics of @topics that are not local for the group.
SELECT t.topic
FROM unnest(@topics::text[]) AS t (topic)
WHERE NOT EXISTS (SELECT FROM troupe.local_topics AS l WHERE l.topic = t.topic AND l.consumer_group = @group)
ORDER BY t.topic
