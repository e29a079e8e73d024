-- What the expectation begins with has come.
INSERT INTO troupe.expectations AS e (consumer_group, name, key, after_at, headers, payload)
VALUES (@group, @name, @key, now(), @headers, @payload)
ON CONFLICT (consumer_group, name, key) DO UPDATE
SET news = e.after_at IS NULL,
    after_at = coalesce(e.after_at, now())
RETURNING news, met_at IS NOT NULL AS met, raised_at IS NOT NULL AS raised
