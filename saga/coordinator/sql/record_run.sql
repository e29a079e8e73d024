INSERT INTO troupe.inbox_groups (consumer_group, days, coordinated_at)
VALUES (@group, 0, clock_timestamp())
ON CONFLICT (consumer_group) DO UPDATE
SET coordinated_at = excluded.coordinated_at
