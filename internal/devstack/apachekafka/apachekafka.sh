#!/usr/bin/env bash
# apachekafka.sh: one real Apache Kafka broker (KRaft) on loopback, from Maven artifacts. No Docker, no root.
#
#   apachekafka.sh start   [--dir D] [--port P] [--version V] [--set key=value]...   prints host:port once the broker answers
#   apachekafka.sh status  [--dir D]                                   prints host:port, or exits 3
#   apachekafka.sh stop    [--dir D]
#   apachekafka.sh kill    [--dir D]                                   SIGKILL, for fault tests; start again on the same data
#   apachekafka.sh destroy [--dir D]                                   stop, then remove D
#
# D (default .kafka) holds the data, the log and server.properties. P (default 19092) is the broker's port, P+1 the controller's.
# V is a release, 3.9.0 or newer (default: the one in pom.xml). --set adds broker properties, which win over the ones below.
# KAFKA_JVM adds flags to the JVM's (default: a heap of 512 MB).
# Needs Java 17 or newer (JAVA_HOME or PATH), and mvn once: the jars (44 MB) are kept in the user's cache folder.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=.kafka port=19092 version='' extra=()
die() { echo "apachekafka.sh: $*" >&2; exit 1; }
usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }

command=${1:-}
[ $# -gt 0 ] && shift
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --dir) dir=$2 ;;
    --port) port=$2 ;;
    --version) version=$2 ;;
    --set) extra+=("$2") ;;
    *) usage ;;
  esac
  shift 2
done
case $dir in /*) ;; *) dir=$PWD/$dir ;; esac
conf=$dir/server.properties log=$dir/server.log
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
: "${version:=$(sed -n 's:.*<kafka.version>\(.*\)</kafka.version>.*:\1:p' "$here/pom.xml")}"
jars=${XDG_CACHE_HOME:-${HOME:?}/.cache}/troupe/apache-kafka-$version

# The recorded process counts only while its command line is our broker's: the number may have been given out again.
pid() {
  local p
  p=$(cat "$dir/pid" 2>/dev/null) && [ -n "$p" ] && ps -p "$p" -o command= 2>/dev/null | grep -qF -- "$conf" && echo "$p"
}
address() { sed -n 's/^listeners=PLAINTEXT:\/\/\([^,]*\).*/\1/p' "$conf"; }
listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# A folder under the final name is complete: Maven writes elsewhere, and a second process that is first wins.
fetch() {
  [ -d "$jars" ] && return
  command -v mvn >/dev/null || die "mvn not found: install Maven to fetch Apache Kafka"
  local partial tries=1
  mkdir -p "$(dirname "$jars")"
  partial=$(mktemp -d "$jars.XXXXXX")
  until mvn -q -B -f "$here/pom.xml" -Dkafka.version="$version" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$partial" >&2; do # what has arrived stays in Maven's own cache
    [ "$((tries++))" -lt 3 ] || { rm -rf "$partial"; die "mvn could not fetch Apache Kafka $version"; }
    sleep 10
  done
  [ -d "$jars" ] && rm -rf "$partial" || mv "$partial" "$jars"
}

# The broker's session with its controller, both in one process: where it ends the broker counts as gone, and no topic can be made or
# led. So it outlasts a machine that stands still. But a broker that was killed registers again only when its old session has ended
# by the new process's setting: a start on data that is there takes 4 s with 2000.
session() { if [ -e "$dir/data/meta.properties" ]; then echo 2000; else echo 60000; fi; }

configure() {
  cat >"$conf" <<C
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:$((port + 1))
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=$dir/data
# One node, so its own topics have one replica, and few partitions to load.
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=4
# A topic is made by who owns it, never by its use.
auto.create.topics.enable=false
num.partitions=6
broker.session.timeout.ms=$(session)
broker.heartbeat.interval.ms=500
# Groups of tests form at once, and notice a dead member soon.
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=100
# The cleaner's default takes 128 MiB of the heap.
log.cleaner.dedupe.buffer.size=8388608
C
  printf '%s\n' ${extra[@]+"${extra[@]}"} >>"$conf"
  cat >"$dir/log4j2.properties" <<'C'
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %c{1} %m%n
logger.server.name=kafka.server
logger.server.level=INFO
C
}

jvm() { exec "$java" -Dlog4j2.configurationFile="$dir/log4j2.properties" -cp "$jars/*" "$@"; }

format() {
  [ -e "$dir/data/meta.properties" ] && return
  local id
  id=$(jvm kafka.tools.StorageTool random-uuid 2>>"$log")
  (jvm kafka.tools.StorageTool format --standalone -t "$id" -c "$conf") >>"$log" 2>&1
}

start() {
  local p found
  if p=$(pid); then ready "$p" && address && return; fi
  found=$("$java" -version 2>&1 | sed -n '1s/[^"]*"\([0-9]*\).*/\1/p') || true
  [ "${found:-0}" -ge 17 ] || die "Java 17 or newer needed, found ${found:-none}"
  for p in "$port" $((port + 1)); do ! listening "$p" || die "port $p is in use"; done
  mkdir -p "$dir"
  mkdir "$dir/starting" 2>/dev/null || die "another start is under way, or was killed: then remove $dir/starting"
  trap 'rmdir "$dir/starting"' EXIT
  fetch
  mkdir -p "$dir/data"
  configure
  : >"$log"
  format || { cat "$log" >&2; die "the data folder could not be formatted"; }
  # A session of its own, so that Ctrl-C in the caller's terminal does not stop the broker.
  local detach=nohup
  command -v setsid >/dev/null && detach=setsid
  # shellcheck disable=SC2086 # KAFKA_JVM is a list
  $detach "$java" -Xms64m -Xmx512m -Djava.awt.headless=true ${KAFKA_JVM:-} \
    -Dlog4j2.configurationFile="$dir/log4j2.properties" -cp "$jars/*" kafka.Kafka "$conf" </dev/null >>"$log" 2>&1 &
  echo $! >"$dir/pid"
  ready $! || { tail -20 "$log" >&2; die "the broker did not start, see $log"; }
  address
}

# Ready is when the broker says so: its port answers before.
ready() {
  local i
  for ((i = 0; i < 1200; i++)); do
    grep -q 'Kafka Server started' "$log" && return
    kill -0 "$1" 2>/dev/null || return 1
    sleep 0.05
  done
  return 1
}

# end SIGNAL: sends it, and SIGKILL after 30 s.
end() {
  local p i at
  if p=$(pid); then
    at=$(address) at=${at##*:}
    kill "-$1" "$p"
    for ((i = 0; i < 600; i++)); do
      pid >/dev/null || break
      sleep 0.05
    done
    if pid >/dev/null; then kill -KILL "$p"; fi
    # A process that ends has no command line any more while it still has its sockets.
    for ((i = 0; i < 600; i++)); do
      listening "$at" || listening $((at + 1)) || break
      sleep 0.05
    done
  fi
  rm -f "$dir/pid"
}

case $command in
  start) start ;;
  status) pid >/dev/null || exit 3; address ;;
  stop) end TERM ;;
  kill) end KILL ;;
  destroy)
    [ -e "$conf" ] || [ ! -e "$dir" ] || die "$dir is not a folder of this script"
    end TERM
    rm -rf "$dir"
    ;;
  *) usage ;;
esac
