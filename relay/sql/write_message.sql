-- Writes a message to the log. It is on disk before the statement returns, whatever the role's synchronous_commit is.
SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'local'
                                        ELSE current_setting('synchronous_commit') END, true),
       pg_logical_emit_message(true, 'troupe', @content)
