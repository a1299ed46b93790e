#!/bin/sh
# One run on two nodes:
#
#     unshare -Urnm sh two_nodes.sh PYTHON CONFIG OUT [STEP]
#
# With STEP, the second node is killed when the run has come that far, and the first if it lives on for longer
# than a minute. Prints the code of each node.
set -eu
python=$1 config=$2 out=$3 step=${4:-}
. "$(dirname "$0")/nodes.sh"

if [ -z "$step" ]; then
    end_within 240
else
    wait_for_steps "$step"
    kill -9 $second
    end_within 60
fi
