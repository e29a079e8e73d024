-- Up to where a look goes that shall not be of too many messages. No row: to its end.
SELECT at
FROM troupe.watch_messages
WHERE flow = @flow AND slot = ANY (@slots::smallint[]) AND at > @from AND at <= @to
ORDER BY at
OFFSET @most LIMIT 1
