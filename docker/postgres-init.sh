#!/bin/bash
# Runs once, when the server's volume is empty: a database and a role of its own for each service. A service's relay
# logs in as the service's role; no role can connect to another service's database.
set -euo pipefail
for name in order payment inventory shipping; do
  psql -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" -d postgres -v name="$name" -v password="$POSTGRES_PASSWORD" <<'SQL'
CREATE ROLE :"name" LOGIN REPLICATION PASSWORD :'password';
CREATE DATABASE :"name" OWNER :"name";
REVOKE ALL ON DATABASE :"name" FROM PUBLIC;
SQL
done
