-- The flows that began last, by the messages that nothing caused.
SELECT correlation, at
FROM troupe.watch_messages
WHERE flow = @flow AND causation IS NULL AND at < @before
ORDER BY at DESC
LIMIT @most
