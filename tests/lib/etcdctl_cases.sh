#!/usr/bin/env bash
# Runs a list of etcdctl commands against the endpoint $1 and prints what they answer, with lease ids as names, so that two
# servers can be compared line by line.
set -uo pipefail
export ETCDCTL_API=3 ETCDCTL_ENDPOINTS=$1
lease=none

# What differs from server to server and from run to run becomes a name.
plain() {
    sed -e "s/$lease/LEASE/g" -e '/^{"level":"warn"/d' -e 's/TTL([0-9]*s), remaining([0-9]*s)/TTL/' \
        -e 's/leased2 leased\]/leased leased2]/' \
        -e 's/^"\(ClusterID\|MemberID\|RaftTerm\|Lease\)" : .*/"\1" : NUMBER/'
}
say() {
    { echo "\$ $*" && "$@" 2>&1; } | plain
}
ctl() { say etcdctl "$@"; }
# txn TEXT: compares, success and failure lists separated by blank lines
txn() {
    echo "\$ txn $(tr '\n' '|' <<<"$1")"
    etcdctl txn <<<"$1" 2>&1 | plain
}
# watch LINES ARGS…: that many lines of a watch, then it is ended
watch() {
    local lines=$1 line pid
    shift
    echo "\$ watch $*"
    exec 4< <(exec etcdctl watch "$@" 2>&1)
    pid=$!
    while [ "$lines" -gt 0 ] && read -r -t 20 line <&4; do
        echo "$line"
        lines=$((lines - 1))
    done
    [ "$lines" -eq 0 ] || echo "($lines lines are missing)"
    kill "$pid" 2>/dev/null
    exec 4<&-
}

# keys and ranges
ctl put a 1
ctl put b 2
ctl put c 3
ctl put a 4
ctl put a 5 --prev-kv
ctl get a
ctl get a --rev=2
ctl get a c
ctl get --prefix ""
ctl get --from-key b
ctl get --prefix "" --limit=2 --keys-only
ctl get --prefix "" --order=DESCEND --sort-by=MODIFY
ctl get --prefix "" --sort-by=CREATE --order=DESCEND --limit=1
ctl get --prefix "" --sort-by=VALUE --order=ASCEND --print-value-only
ctl get missing
ctl get a --rev=100
ctl get a -w fields --hex=false
ctl put "" x
ctl put x --ignore-value
ctl put a --ignore-value
ctl del c --prev-kv
ctl del c
ctl del --prefix zzz
ctl get --prefix "" --keys-only -w fields

# transactions
txn $'value("a") = "5"\n\nput t 1\nget a\n\nput t 2\n'
txn $'mod("a") < "2"\nversion("a") > "0"\n\nput t 3\n\nget t\ndel t\n'
txn $'create("nothing") = "0"\n\nput nothing now\n\n\n'
txn $'\nput dup 1\nput dup 2\n\n'
ctl get --prefix ""

# leases
lease=$(etcdctl lease grant 600 | sed -n 's/^lease \([0-9a-f]*\) .*/\1/p')
echo "lease granted: $(test -n "$lease" && echo yes)"
ctl put leased 1 --lease="$lease"
ctl put leased2 1 --lease="$lease"
ctl lease list
ctl lease timetolive "$lease" --keys
ctl lease keep-alive --once "$lease"
ctl put leased2 --ignore-lease 2
ctl get leased2 -w fields
ctl lease revoke "$lease"
ctl get --prefix leased
ctl lease revoke "$lease"
ctl lease timetolive "$lease"
ctl put a 1 --lease=1234567890abcdef
ctl lease list

# watches
ctl put w1 1
ctl put w2 2
ctl del w1
watch 8 --prefix w --rev=2
watch 9 --prefix w --rev=2 --prev-kv

# compaction
ctl put a 7
ctl put a 8
ctl compaction 18
ctl get a --rev=17
ctl compaction 18
ctl compaction 1000
watch 1 a --rev=3
ctl compaction 19 --physical

# recipes on top: a lock, two in a row
ctl lock mutex echo locked
ctl lock mutex echo locked again
ctl get --prefix mutex

# the cluster
cluster() { # NAME FILTER COMMAND…
    local name=$1 filter=$2
    shift 2
    echo "\$ $name"
    "$@" 2>&1 | sed -e "$filter"
}
cluster "endpoint health" 's/^[^ ]* is/ENDPOINT is/; s/took = .*/took/' etcdctl endpoint health
cluster "endpoint status" 's/^[^,]*, [^,]*, [^,]*, [^,]*,\([^,]*,[^,]*\),.*/\1/' etcdctl endpoint status
cluster "member list" 's/^[^,]*,\([^,]*\),.*,\([^,]*\)$/\1,\2/' etcdctl member list
cluster "endpoint status of a URL" 's/^[^,]*, [^,]*, [^,]*, [^,]*,\([^,]*,[^,]*\),.*/\1/' \
    env ETCDCTL_ENDPOINTS="http://$1" etcdctl endpoint status
cluster "alarm list" '' etcdctl alarm list
cluster "defrag" 's/\[.*\]/ENDPOINT/' etcdctl defrag
cluster "endpoint hashkv" 's/^[^,]*, [0-9]*$/ENDPOINT, HASH/' etcdctl endpoint hashkv
ctl move-leader 1
ctl user list
ctl role list
