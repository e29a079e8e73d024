-- Records that the expected event has come: perhaps before the event that starts the expectation, perhaps too late.
INSERT INTO troupe.expectations AS e (consumer_group, name, key, met_at, forget_at)
VALUES (@group, @name, @key, now(), now() + make_interval(secs => @retention::float8))
ON CONFLICT (consumer_group, name, key) DO UPDATE
SET news = e.met_at IS NULL,
    met_at = coalesce(e.met_at, now()),
    headers = NULL,
    payload = NULL,
    -- If the alert with the status missing was accepted, the one with the status late is due now. If it is being posted,
    -- accept_alerts.sql decides. If it was not posted yet, the alert that is posted has the status late.
    alert_at = CASE WHEN e.met_at IS NULL AND e.alerted_at IS NOT NULL THEN coalesce(e.alert_at, now()) ELSE e.alert_at END,
    forget_at = coalesce(e.forget_at, now() + make_interval(secs => @retention::float8))
RETURNING news, met_at IS NOT NULL AS met, raised_at IS NOT NULL AS raised
