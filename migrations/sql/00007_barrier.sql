-- +goose Up

-- A command of a saga is known by its saga, step and operation, so that its answer is found under whatever id and
-- idempotency key it comes again. Its row has
--
--   message_type      the operation and the step, such as 'forward charge': no type's name looks like that
--   idempotency_key   the saga's id
--   command_key       the command's own idempotency key; null in the rows of all other commands
ALTER TABLE troupe.answers ADD COLUMN command_key text;

-- With the group in front this index looked as good as the primary key to a planner that had seen the table empty, and a
-- prepared statement kept to that choice: each look for an answer then read all answers of the group.
DROP INDEX troupe.answers_answered_at;
CREATE INDEX answers_answered_at ON troupe.answers (answered_at);
