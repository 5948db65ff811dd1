#!/usr/bin/env bash
# The program in the README is examples/counter.c, and it runs.
set -euo pipefail
. "$(dirname "$0")/../lib/guard.sh"
listing=$(awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' "$MUSTER_SOURCE_DIR/README.md")
diff <(echo "$listing") "$MUSTER_SOURCE_DIR/examples/counter.c" || { echo "README.md shows another program than examples/counter.c"; exit 1; }
out=$("$MUSTER_BINARY_DIR/bin/muster" run -n 3 -- "$MUSTER_BINARY_DIR/bin/counter" 2>&1)
grep -q 'total 3000$' <<<"$out" || { echo "unexpected output: $out"; exit 1; }
echo "the program of the README runs"
