-- Begins the expectation, since the message in After has come: perhaps after the expected event, perhaps once more.
INSERT INTO troupe.expectations AS e (consumer_group, name, key, after_at, due_at, alert_id, headers, payload)
VALUES (@group, @name, @key, now(), clock_timestamp() + make_interval(secs => @within::float8), @alert_id, @headers, @payload)
ON CONFLICT (consumer_group, name, key) DO UPDATE
SET news = e.after_at IS NULL,
    after_at = coalesce(e.after_at, excluded.after_at),
    due_at = coalesce(e.due_at, excluded.due_at),
    alert_id = coalesce(e.alert_id, excluded.alert_id)
RETURNING news, met_at IS NOT NULL AS met, raised_at IS NOT NULL AS raised
