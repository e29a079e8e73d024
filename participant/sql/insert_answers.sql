INSERT INTO troupe.answers (consumer_group, message_type, idempotency_key, outcome, type, content_type, payload, command_key,
                            request_hash)
SELECT $1, a.*
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::text[], $9::bytea[]) AS a
