SELECT DISTINCT ON (hold_key)
       hold_key,
       coalesce(extract(epoch FROM next_try - clock_timestamp()), 0)::float8 AS wait
FROM troupe.held
WHERE consumer_group = @group
  AND topic = @topic
  AND partition = @partition
ORDER BY hold_key, position
