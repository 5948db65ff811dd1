#!/bin/sh
# case_runner passes our own cases and finds every wrong one.
set -eu
. "$(dirname "$0")/../lib/guard.sh"
runner=$MUSTER_BINARY_DIR/bin/case_runner
own=$MUSTER_SOURCE_DIR/tests/conformance/cases

for file in "$own"/*.json; do
    [ "$file" = "$own/wrong.json" ] || "$runner" "$file"
done

if "$runner" "$own/wrong.json" >wrong.$$; then
    echo "wrong cases passed"; exit 1
fi
cat wrong.$$
[ "$(grep -c FAILED wrong.$$)" = 6 ]
grep -q '^wrong/kind: FAILED: not built$' wrong.$$
[ "$(tail -1 wrong.$$)" = "0 passed, 6 failed" ]
rm -f wrong.$$

if "$runner" /nonexistent.json; then
    echo "a missing file passed"; exit 1
fi
