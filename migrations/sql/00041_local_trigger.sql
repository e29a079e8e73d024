-- +goose Up

-- The function of the trigger of local topics inserts into troupe.local_work with the owner's rights. Every role may execute a new
-- function, and so could use it in a trigger of a table of its own, such as a temporary one, and write messages for any local
-- participant. Triggers that exist, and the triggers that troupe.make_local creates as the owner, need no such right.
REVOKE ALL ON FUNCTION troupe.take_local() FROM PUBLIC;
