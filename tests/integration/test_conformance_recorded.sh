#!/bin/sh
# case_runner passes the recorded behaviour of TensorFlow, where the recordings are at hand.
set -eu
. "$(dirname "$0")/../lib/guard.sh"
runner=$MUSTER_BINARY_DIR/bin/case_runner
recorded=$MUSTER_SOURCE_DIR/../shared/cases
built="batching cluster_rules packing server sharding strategy simple tf_config cluster_spec union sagemaker slurm kubernetes gce tpu"

files=
for area in $built; do
    [ -f "$recorded/$area.json" ] && files="$files $recorded/$area.json"
done
if [ -z "$files" ]; then
    skip "there are no recorded cases in $recorded"
fi
"$runner" $files
