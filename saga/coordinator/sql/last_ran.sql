-- Locks the row, so that only one process extends the stash.
SELECT (SELECT extract(epoch FROM clock_timestamp() - coordinated_at)::float8
        FROM troupe.inbox_groups
        WHERE consumer_group = @group
        FOR UPDATE)
