#!/usr/bin/env bash
# apachekafka.sh: real Apache Kafka brokers (KRaft) on loopback, one or several, from Maven artifacts. No Docker, no root.
#
#   apachekafka.sh start   [--dir D] [--port P] [--version V] [--nodes N] [--set key=value]...   prints host:port,... once all brokers answer
#   apachekafka.sh status  [--dir D]                                   prints host:port,..., or exits 3 if a broker is down
#   apachekafka.sh stop    [--dir D] [--node K]
#   apachekafka.sh kill    [--dir D] [--node K]                        SIGKILL, for fault tests; start again on the same data
#   apachekafka.sh freeze  [--dir D] [--node K]                        SIGSTOP, as a host that is cut off
#   apachekafka.sh thaw    [--dir D] [--node K]                        SIGCONT
#   apachekafka.sh start   [--dir D] --node K                          starts one of several nodes again
#   apachekafka.sh roll    [--dir D] [--every SECONDS]                 kills a node and starts it again, one after the other, until it is stopped
#   apachekafka.sh destroy [--dir D]                                   stop, then remove D
#
# D (default .kafka) holds the data, the log and server.properties; of several nodes, in a folder for each. P (default 19092) is the
# broker's port, P+1 the controller's; node K of several has P+2(K-1) and the one after it. V is a release, 3.9.0 or newer (default: the
# one in pom.xml). --set adds broker properties, which win over the ones below. Without --node a command is for all nodes.
# Three nodes have replication factor 3 and min.insync.replicas 2, and replace a broker that is silent for 3 s (Kafka's default: 9 s).
# KAFKA_JVM adds flags to the JVM's (default: a heap of 512 MB; of several nodes 256 MB each, of which 300 MB are resident).
# Needs Java 17 or newer (JAVA_HOME or PATH), and mvn once: the jars (44 MB) are kept in the user's cache folder.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=.kafka port=19092 version='' nodes='' node='' every=10 extra=()
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
    --nodes) nodes=$2 ;;
    --node) node=$2 ;;
    --every) every=$2 ;;
    --set) extra+=("$2") ;;
    *) usage ;;
  esac
  shift 2
done
case $dir in /*) ;; *) dir=$PWD/$dir ;; esac
if [ -z "$nodes" ]; then # the folder says it, if there is one
  nodes=1
  while [ -d "$dir/node-$((nodes + 1))" ]; do nodes=$((nodes + 1)); done
fi
case $nodes in 1 | 3) ;; *) die "--nodes $nodes: want 1 or 3" ;; esac
[ -z "$node" ] || [[ $node =~ ^[1-3]$ && $node -le $nodes ]] || die "--node $node: $dir has $nodes"
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
if [ -n "$node" ] || [ "$command" = roll ]; then version=$(cat "$dir/version" 2>/dev/null) || true; fi
: "${version:=$(sed -n 's:.*<kafka.version>\(.*\)</kafka.version>.*:\1:p' "$here/pom.xml")}"
jars=${XDG_CACHE_HOME:-${HOME:?}/.cache}/troupe/apache-kafka-$version

each() { if [ -n "$node" ]; then echo "$node"; else seq 1 "$nodes"; fi; }
use() { # use K: the files and the port of node K
  home=$dir at=$((port + 2 * ($1 - 1)))
  [ "$nodes" = 1 ] || home=$dir/node-$1
  conf=$home/server.properties log=$home/server.log
}

# The recorded process counts only while its command line is our broker's: the number may have been given out again.
pid() {
  local p
  p=$(cat "$home/pid" 2>/dev/null) && [ -n "$p" ] && ps -p "$p" -o command= 2>/dev/null | grep -qF -- "$conf" && echo "$p"
}
address() { sed -n 's/^listeners=PLAINTEXT:\/\/\([^,]*\).*/\1/p' "$conf"; }
addresses() { for k in $(each); do use "$k"; address; done | paste -sd, -; }
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

# The session of a single broker with its controller, both in one process: where it ends the broker counts as gone, and no topic can be
# made or led. So it outlasts a machine that stands still. But a broker that was killed registers again only when its old session has
# ended by the new process's setting: a start on data that is there takes 4 s with 2000. Of three brokers the others go on without one.
session() {
  if [ "$nodes" = 3 ]; then echo 3000; elif [ -e "$home/data/meta.properties" ]; then echo 2000; else echo 60000; fi
}

# quorum K: the controllers, of which node K is one.
quorum() {
  if [ "$nodes" = 1 ]; then echo "controller.quorum.bootstrap.servers=127.0.0.1:$((at + 1))"; return; fi
  echo "controller.quorum.voters=1@127.0.0.1:$((port + 1)),2@127.0.0.1:$((port + 3)),3@127.0.0.1:$((port + 5))"
}

configure() { # configure K
  local min=$(((nodes + 1) / 2))
  cat >"$conf" <<C
process.roles=broker,controller
node.id=$1
$(quorum)
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:$at,CONTROLLER://127.0.0.1:$((at + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$at,CONTROLLER://127.0.0.1:$((at + 1))
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=$home/data
# As many replicas as nodes, of which most must have a record; and few partitions of Kafka's own topics to load.
default.replication.factor=$nodes
min.insync.replicas=$min
offsets.topic.replication.factor=$nodes
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=$nodes
transaction.state.log.min.isr=$min
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=$nodes
share.coordinator.state.topic.min.isr=$min
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
  [ "$nodes" = 1 ] || cat >>"$conf" <<'C'
inter.broker.listener.name=PLAINTEXT
controller.quorum.election.timeout.ms=1000
controller.quorum.fetch.timeout.ms=2000
num.network.threads=2
num.io.threads=2
C
  printf '%s\n' ${extra[@]+"${extra[@]}"} >>"$conf"
  cat >"$home/log4j2.properties" <<'C'
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

jvm() { exec "$java" -Dlog4j2.configurationFile="$home/log4j2.properties" -cp "$jars/*" "$@"; }

format() {
  [ -e "$home/data/meta.properties" ] && return
  [ -s "$dir/id" ] || (jvm kafka.tools.StorageTool random-uuid) >"$dir/id" 2>>"$log" || return
  local standalone=--standalone
  [ "$nodes" = 1 ] || standalone=''
  # shellcheck disable=SC2086 # no argument where it is empty
  (jvm kafka.tools.StorageTool format $standalone -t "$(cat "$dir/id")" -c "$conf") >>"$log" 2>&1
}

launch() {
  local detach=nohup size='-Xms64m -Xmx512m'
  [ "$nodes" = 1 ] || size='-Xms64m -Xmx256m -Xss256k -XX:+UseSerialGC -XX:TieredStopAtLevel=1'
  # A session of its own, so that Ctrl-C in the caller's terminal does not stop the broker.
  command -v setsid >/dev/null && detach=setsid
  # shellcheck disable=SC2086 # KAFKA_JVM is a list
  $detach "$java" $size -Djava.awt.headless=true ${KAFKA_JVM:-} \
    -Dlog4j2.configurationFile="$home/log4j2.properties" -cp "$jars/*" kafka.Kafka "$conf" </dev/null >>"$log" 2>&1 &
  echo $! >"$home/pid"
}

start() {
  local p k found new=()
  for k in $(each); do
    use "$k"
    pid >/dev/null || new+=("$k")
  done
  found=$("$java" -version 2>&1 | sed -n '1s/[^"]*"\([0-9]*\).*/\1/p') || true
  [ "${found:-0}" -ge 17 ] || die "Java 17 or newer needed, found ${found:-none}"
  if [ ${#new[@]} -gt 0 ]; then
    mkdir -p "$dir"
    mkdir "$dir/starting" 2>/dev/null || die "another start is under way, or was killed: then remove $dir/starting"
    trap 'rmdir "$dir/starting" 2>/dev/null || true' EXIT
    fetch
    echo "$version" >"$dir/version"
    for k in "${new[@]}"; do
      use "$k"
      if [ -n "$node" ]; then
        at=$(address) at=${at##*:} # as it was configured
      else
        mkdir -p "$home/data"
        configure "$k"
      fi
      for p in "$at" $((at + 1)); do ! listening "$p" || die "port $p is in use"; done
      : >"$log"
      format || { cat "$log" >&2; die "the data folder could not be formatted"; }
    done
    for k in "${new[@]}"; do use "$k"; launch; done
  fi
  for k in $(each); do
    use "$k"
    ready "$(cat "$home/pid")" || { tail -20 "$log" >&2; die "the broker did not start, see $log"; }
  done
  rmdir "$dir/starting" 2>/dev/null || true
  addresses
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

signal() { # signal SIGNAL: to all processes that run
  local p k
  for k in $(each); do
    use "$k"
    if p=$(pid); then kill "-$1" "$p"; fi
  done
}

# end SIGNAL: sends it, and SIGKILL after 30 s. Of several nodes the last ones have no quorum to leave in order: they get 10 s.
end() {
  local p i k at running=()
  for k in $(each); do
    use "$k"
    if pid >/dev/null; then running+=("$k"); fi
  done
  signal CONT # a frozen process takes no other signal but SIGKILL
  signal "$1"
  for k in ${running[@]+"${running[@]}"}; do
    use "$k"
    for ((i = 0; i < (nodes == 1 || ${node:-0} > 0 ? 600 : 200); i++)); do
      pid >/dev/null || break
      sleep 0.05
    done
    if p=$(pid); then kill -KILL "$p"; fi
    # A process that ends has no command line any more while it still has its sockets.
    at=$(address) at=${at##*:}
    for ((i = 0; i < 600; i++)); do
      listening "$at" || listening $((at + 1)) || break
      sleep 0.05
    done
  done
  for k in $(each); do use "$k"; rm -f "$home/pid"; done
}

roll() {
  while :; do
    for node in $(seq 1 "$nodes"); do
      sleep "$every"
      echo "$(date +%T) node $node is killed"
      end KILL
      sleep 2
      start >/dev/null
      echo "$(date +%T) node $node is back"
    done
  done
}

status() {
  local k
  for k in $(each); do
    use "$k"
    pid >/dev/null || exit 3
  done
  addresses
}

case $command in
  start) start ;;
  status) status ;;
  stop) end TERM ;;
  kill) end KILL ;;
  freeze) signal STOP ;;
  thaw) signal CONT ;;
  roll) roll ;;
  destroy)
    use 1
    [ -e "$conf" ] || [ ! -e "$dir" ] || die "$dir is not a folder of this script"
    if [ "$nodes" = 1 ]; then end TERM; else end KILL; fi
    rm -rf "$dir"
    ;;
  *) usage ;;
esac
