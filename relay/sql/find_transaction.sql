-- Finds out whether the log that the slot keeps contains the commit of a checkpoint: a commit that ends at @lsn, at the time @committed
-- (null: not known), and, before @up_to, a message with the content @message (empty: any log). It confirms nothing to the slot. A commit
-- message of pgoutput has the byte C, a byte of flags, and 8 bytes each for the commit's LSN, its end and its time. The byte M begins a
-- message of pg_logical_emit_message, and its content ends it.
SELECT coalesce(bool_or(substr(m.data, 1, 1) = 'C'
                        AND substr(m.data, 11, 8) = pg_lsn_send(@lsn::pg_lsn)
                        AND (@committed::timestamptz IS NULL OR substr(m.data, 19, 8) = timestamptz_send(@committed::timestamptz))), false)
       AND (@message::text = ''
            OR coalesce(bool_or(substr(m.data, 1, 1) = 'M'
                                AND position(convert_to(@message, 'UTF8') IN m.data) > 0), false)) AS found
FROM pg_logical_slot_peek_binary_changes(
  @slot::name, @up_to::pg_lsn, NULL, 'proto_version', '1', 'publication_names', @publication, 'messages', 'true') AS m
