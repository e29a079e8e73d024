-- Finds out whether the log that the slot keeps contains the commit of a checkpoint: a commit that ends at @lsn, at the time @committed
-- (null: not known). It confirms nothing to the slot. A commit message of pgoutput has the byte C, a byte of flags, and 8 bytes each for
-- the commit's LSN, its end and its time.
SELECT EXISTS (
  SELECT
  FROM pg_logical_slot_peek_binary_changes(
    @slot::name, @lsn::pg_lsn, NULL, 'proto_version', '1', 'publication_names', @publication) AS m
  WHERE substr(m.data, 1, 1) = 'C'
    AND substr(m.data, 11, 8) = pg_lsn_send(@lsn::pg_lsn)
    AND (@committed::timestamptz IS NULL OR substr(m.data, 19, 8) = timestamptz_send(@committed::timestamptz))
) AS found
