-- The flow of the newest message that has the text as its key, or the id as its own.
SELECT correlation
FROM troupe.watch_messages
WHERE flow = @flow AND (key = @key OR correlation = @id)
ORDER BY correlation = @id DESC, at DESC
LIMIT 1
