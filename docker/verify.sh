#!/usr/bin/env bash
# docker/verify.sh [ORDERS]: brings docker-compose.yml up for real, posts ORDERS orders (default 200), kills and restarts
# a service, a relay and the broker meanwhile, waits for every order to end, checks that nothing was lost or doubled,
# and takes everything down again, volumes included. Exit status 0 when every check holds.
#
# It uses a project name and ports of its own, so that a demo that already runs is left alone.
set -euo pipefail
cd "$(dirname "$0")/.."
orders=${1:-200}
export COMPOSE_PROJECT_NAME=troupe-verify DEMO_FAIL=${DEMO_FAIL:-payment=2%,inventory=3%,shipping=5%}
export DEMO_HTTP_PORT=${DEMO_HTTP_PORT:-18080} DEMO_POSTGRES_PORT=${DEMO_POSTGRES_PORT:-25432} DEMO_KAFKA_PORT=${DEMO_KAFKA_PORT:-29092}
compose() { docker compose "$@"; }
say() { printf '%s %s\n' "$(date +%T)" "$*"; }
sql() { # sql DATABASE STATEMENT
  compose exec -T postgres psql -X -At -v ON_ERROR_STOP=1 -U postgres -d "$1" -c "$2"
}
finish() {
  status=$?
  [ "$status" = 0 ] || { say "failed; the last lines of every container:"; compose ps -a; compose logs --tail 15; }
  say "taking it down"
  compose down -v --timeout 20 >/dev/null 2>&1
  exit "$status"
}
trap finish EXIT

say "building and starting"
compose --progress quiet up -d --build --wait

# Every address of the API is tried until it answers: that is what a client of a service that may be killed does, and
# the idempotency key makes it safe.
post() {
  local n=$1 body status tries
  body=$(printf '{"order_id":"o-%s","customer_id":"c-%s","placed_at":"1997-01-01","quantity":%d,"amount":"%d.%02d"}' \
    "$n" $((n % 37)) $((n % 4 + 1)) $((n % 90)) $((n % 100)))
  for ((tries = 0; tries < 120; tries++)); do
    status=$(curl -s -o /dev/null -w '%{http_code}' --max-time 10 -H 'Content-Type: application/json' -H "Idempotency-Key: key-$n" \
      -d "$body" "http://127.0.0.1:$DEMO_HTTP_PORT/orders") || true
    case $status in
      202) return 0 ;;
      4??) say "order $n was refused with $status: $body"; return 1 ;;
    esac
    sleep 0.5
  done
  say "order $n: no answer"
  return 1
}

say "posting $orders orders"
for ((n = 1; n <= orders; n++)); do
  post "$n"
  case $n in
    $((orders / 5)))     say "kill payment";        compose kill -s KILL payment >/dev/null 2>&1; compose start payment >/dev/null 2>&1 ;;
    $((orders * 2 / 5))) say "kill inventory-relay"; compose kill -s KILL inventory-relay >/dev/null 2>&1; compose start inventory-relay >/dev/null 2>&1 ;;
    $((orders * 3 / 5))) say "kill the broker";     compose kill -s KILL kafka >/dev/null 2>&1; compose start kafka >/dev/null 2>&1 ;;
    $((orders * 4 / 5))) say "kill order";          compose kill -s KILL order >/dev/null 2>&1; compose start order >/dev/null 2>&1 ;;
  esac
done

say "waiting for every order to end"
for ((t = 0; t < 300; t++)); do
  running=$(sql order "SELECT count(*) FROM order_flow WHERE ended_at IS NULL AND status IS DISTINCT FROM 'parked'")
  [ "$running" != 0 ] || break
  sleep 1
done
sql order "SELECT status || ' ' || count(*) FROM order_flow GROUP BY status ORDER BY status"

failed=0
check() { # check WHAT WANT GOT
  if [ "$2" = "$3" ]; then say "ok      $1: $3"; else say "FAILED  $1: want $2, got $3"; failed=1; fi
}
check "orders there" "$orders" "$(sql order "SELECT count(*) FROM orders")"
check "orders that have not ended" 0 "$(sql order "SELECT count(*) FROM order_flow WHERE ended_at IS NULL AND status IS DISTINCT FROM 'parked'")"
check "orders parked" 0 "$(sql order "SELECT count(*) FROM order_flow WHERE status = 'parked'")"
check "cents charged less refunded" \
  "$(sql order "SELECT coalesce(sum(amount_cents), 0) FROM order_flow WHERE status = 'completed'")" \
  "$(sql payment "SELECT coalesce(sum(CASE kind WHEN 'charge' THEN amount_cents ELSE -amount_cents END), 0) FROM ledger")"
check "balances equal the ledger" \
  "$(sql payment "SELECT coalesce(sum(CASE kind WHEN 'charge' THEN amount_cents ELSE -amount_cents END), 0) FROM ledger")" \
  "$(sql payment "SELECT coalesce(sum(balance_cents), 0) FROM accounts")"
check "stock taken" \
  "$(sql order "SELECT coalesce(sum(quantity), 0) FROM order_flow WHERE status = 'completed'")" \
  "$(sql inventory "SELECT coalesce(sum(initial - available), 0) FROM stock")"
check "shipments" \
  "$(sql order "SELECT count(*) FROM order_flow WHERE status = 'completed'")" "$(sql shipping "SELECT count(*) FROM shipments")"
check "deadlines left of what ended" 0 "$(sql order "SELECT count(*) FROM troupe.deadlines")"
for db in order payment inventory shipping; do
  check "dead letters of $db" 0 "$(sql $db "SELECT count(*) FROM troupe.dead_letters")"
  # What a relay that reads the log has published stays until its retention is over.
  for ((t = 0; t < 60; t++)); do
    left=$(sql $db "SELECT count(*) FROM troupe.outbox o WHERE NOT coalesce(
      (SELECT pg_visible_in_snapshot(o.xid, published) FROM troupe.relay_state WHERE source = 'wal' AND sweep IS NULL), false)")
    [ "$left" != 0 ] || break
    sleep 1
  done
  check "entries of $db that are not published" 0 "$left"
done
[ "$failed" = 0 ]
say "every check holds"
