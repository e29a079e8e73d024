INSERT INTO troupe.answers (consumer_group, message_type, idempotency_key, outcome, type, content_type, payload, command_key,
                            request_hash)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)