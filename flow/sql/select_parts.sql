SELECT part, headers, payload
FROM troupe.join_parts
WHERE consumer_group = @group
  AND name = @name
  AND key = @key
