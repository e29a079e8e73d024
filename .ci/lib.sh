# What .ci/run and .ci/soak share: tools, and an Apache Kafka of their own.
# shellcheck shell=bash

step() { printf '\n== %s  (%s)\n' "$*" "$(date +%T)"; }

package() { # package NAME: installs a Debian package where we may
  command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ] || return 0
  [ -n "${APT_UPDATED:-}" ] || { apt-get -qq -o Acquire::Retries=5 update >/dev/null; APT_UPDATED=1; }
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=5 install -y --no-install-recommends "$1" >/dev/null
}

need() { # need COMMAND PACKAGE: installs a Debian package where the command is missing and we may
  command -v "$1" >/dev/null 2>&1 && return
  package "$2"
  command -v "$1" >/dev/null 2>&1 || { echo "$1 is missing: install $2" >&2; exit 1; }
}

fetched() { # fetched COMMAND...: runs what only fetches, again where the network fails it
  local wait
  for wait in 5 20 60; do
    "$@" && return
    sleep "$wait"
  done
  "$@"
}

# previous_build FILE: builds the program troupe of the last release before this commit, without release candidates. Before the first release: of the commit that last changed the
# migrations, since until then a migration may change.
previous_build() {
  local commit folder out
  commit=$(git describe --tags --abbrev=0 --match 'v*' --exclude '*-*' HEAD^ 2>/dev/null || git log -1 --format=%H -- migrations/sql)
  echo "the previous version: $(git log -1 --format='%h %s' "$commit")"
  folder=$(mktemp -d) out=$PWD/$1
  git archive "$commit" | tar -x -C "$folder"
  (cd "$folder" && fetched go build -o "$out" ./cmd/troupe)
  rm -rf "$folder"
}

kafka_dir= kafka_roll=
kafka_start() { # kafka_start [VERSION [NODES]]: sets KAFKA to the addresses of a fresh Apache Kafka, of one node or of three
  need java openjdk-17-jre-headless
  need mvn maven
  kafka_dir=$(mktemp -d)
  KAFKA=$(internal/devstack/apachekafka/apachekafka.sh start --dir "$kafka_dir" --port "$(free_port)" ${1:+--version "$1"} ${2:+--nodes "$2"})
  echo "Apache Kafka on $KAFKA"
}
kafka_roll() { # kafka_roll SECONDS: from now on kills a node with SIGKILL and starts it again, one after the other, each after that time
  internal/devstack/apachekafka/apachekafka.sh roll --dir "$kafka_dir" --every "$1" &
  kafka_roll=$!
}
kafka_stop() {
  [ -z "$kafka_dir" ] && return
  if [ -n "$kafka_roll" ]; then
    kill "$kafka_roll" && wait "$kafka_roll" || true
    kafka_roll=
  fi
  internal/devstack/apachekafka/apachekafka.sh destroy --dir "$kafka_dir"
  rm -rf "$kafka_dir"
  kafka_dir=
}

free_port() { # the first of six neighbouring ports that are free
  local p n
  for ((p = 29092; p < 39000; p += 10)); do
    for ((n = 0; n < 6; n++)); do
      (exec 3<>"/dev/tcp/127.0.0.1/$((p + n))") 2>/dev/null && continue 2
    done
    echo "$p"
    return
  done
  return 1
}

scratch=
# scratch_in_memory lets Postgres and Kafka keep their files in memory, where 12 GB are free: each test makes a database, and that is
# much work for a disk's file system.
scratch_in_memory() {
  local room free
  room=$(df --output=avail -BG /dev/shm 2>/dev/null | tail -1 | tr -dc 0-9)
  free=$(awk '/^MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo 2>/dev/null)
  [ "${room:-0}" -ge 12 ] && [ "${free:-0}" -ge 12 ] || return 0
  scratch=$(mktemp -d /dev/shm/ci.XXXXXX)
  chmod 711 "$scratch" # Postgres runs as another user
  printf '#!/bin/sh\n' >"$scratch/program"
  chmod +x "$scratch/program"
  "$scratch/program" 2>/dev/null || { scratch_remove; scratch=; return 0; } # mounted noexec, as in a container
  export GOTMPDIR=${GOTMPDIR:-${TMPDIR:-/tmp}} # programs of tests are large
  export TMPDIR=$scratch
}
scratch_remove() { [ -z "$scratch" ] || rm -rf "$scratch"; }

docker_dir=
docker_start() { # finds the machine's Docker engine, or starts the one of TROUPE_ENGINE
  local from=${TROUPE_ENGINE:-../shared/compose}
  docker version >/dev/null 2>&1 && return
  [ -x "$from/engine.sh" ] || { echo "no Docker engine answers, and $from has none" >&2; return 1; }
  need mvn maven
  docker_dir=$(mktemp -d)
  cp -r "$from" "$docker_dir/tools"
  chmod -R u+w "$docker_dir/tools" # the files of the images keep their rights
  "$docker_dir/tools/engine.sh" start "$docker_dir/engine"
  eval "$("$docker_dir/tools/engine.sh" env "$docker_dir/engine")"
  "$docker_dir/tools/images.sh"
}
docker_stop() {
  [ -z "$docker_dir" ] && return
  "$docker_dir/tools/engine.sh" stop "$docker_dir/engine"
  rm -rf "$docker_dir"
  docker_dir=
}
