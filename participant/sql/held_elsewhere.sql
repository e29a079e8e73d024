-- Topics that the group does not consume, with how many of their messages it holds.
SELECT topic, count(*)
FROM troupe.held
WHERE consumer_group = @group
  AND topic <> ALL (@consumed::text[])
GROUP BY topic
ORDER BY topic
