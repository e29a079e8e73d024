-- +goose Up

-- subject_keys has the key that encrypts the personal data of a person, a subject: docs/personal-data.md. Services insert a row when they
-- first encrypt data of a subject. An erasure removes the key and keeps the row, so that no service makes another one: troupe erase.
CREATE TABLE troupe.subject_keys (
  subject      bytea       PRIMARY KEY CHECK (length(subject) = 32), -- SHA-256 of the subject's id
  wrapped_key  bytea       CHECK (length(wrapped_key) < 4096),       -- a keyset of Tink, encrypted with the key-encryption key
  created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  forgotten_at timestamptz,
  CHECK ((wrapped_key IS NULL) = (forgotten_at IS NOT NULL))
);
