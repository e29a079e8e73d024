-- Locks the row, so that only one process extends the times of stashed events.
SELECT (SELECT extract(epoch FROM clock_timestamp() - coordinated_at)::float8
        FROM troupe.inbox_groups
        WHERE consumer_group = @group
        FOR UPDATE)
