-- Finds the row of a checkpoint. A row that is not found is pending when its transaction is still in progress: the log has
-- the commit, which waits for a synchronous standby. A transaction id that this server has not assigned yet is of another server.
SELECT EXISTS (SELECT FROM troupe.outbox WHERE position = @position AND id = @id) AS found,
       CASE WHEN @xid::text::xid8 < pg_current_xact_id()
            THEN coalesce(pg_xact_status(@xid::text::xid8) = 'in progress', false)
            ELSE false
       END AS pending
