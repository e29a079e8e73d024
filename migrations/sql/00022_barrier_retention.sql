-- +goose Up

-- Answers of sagas' commands are kept longer than others, each kind by an index of its own.
CREATE INDEX answers_of_sagas_answered_at ON troupe.answers (answered_at) WHERE command_key IS NOT NULL;
CREATE INDEX answers_of_others_answered_at ON troupe.answers (answered_at) WHERE command_key IS NULL;
DROP INDEX troupe.answers_answered_at;
