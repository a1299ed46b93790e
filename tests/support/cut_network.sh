#!/bin/sh
# One run on two nodes whose link is cut so that no packet says so, when the run has recorded STEPS steps:
#
#     unshare -Urnm sh cut_network.sh PYTHON CONFIG OUT STEPS
#
# Prints the code of each node. A node that lives on for longer than a minute is killed.
set -eu
python=$1 config=$2 out=$3 steps=$4
. "$(dirname "$0")/nodes.sh"

wait_for_steps "$steps"
ip -n node-0 link set link-0 down
end_within 60
