-- The tables of the library. main creates the schema troupe, which has the outbox.
CREATE TABLE IF NOT EXISTS copies (
  isbn text PRIMARY KEY,
  free bigint NOT NULL CHECK (free >= 0)
);
CREATE TABLE IF NOT EXISTS loans (
  loan_id text PRIMARY KEY,
  reader  text NOT NULL CHECK (reader <> ''),
  isbn    text NOT NULL REFERENCES copies,
  returned boolean NOT NULL DEFAULT false
);
CREATE TABLE IF NOT EXISTS lockers (
  branch  text NOT NULL,
  number  bigint NOT NULL,
  loan_id text UNIQUE,
  PRIMARY KEY (branch, number)
);
