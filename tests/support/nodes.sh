# Sourced by scripts that run `frossl pretrain` on two nodes: network namespaces that a link connects, as it
# connects two machines. Needs $python, $config and $out; $first and $second are the processes of the nodes.
mount -t tmpfs none /run
ip netns add node-0
ip netns add node-1
ip link add link-0 netns node-0 type veth peer name link-1 netns node-1
for node in 0 1; do
    ip -n node-$node addr add 10.77.0.$((node + 1))/24 dev link-$node
    ip -n node-$node link set link-$node up
    ip -n node-$node link set lo up
done

start() {
    MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 NODE_RANK=$1 GLOO_SOCKET_IFNAME=link-$1 exec \
        unshare --uts sh -c "hostname node-$1; exec \"\$@\"" - \
        ip netns exec node-$1 "$python" -m frossl pretrain cifar10-mini \
        --config "$config" --out "$out" --num-nodes 2 --quiet
}
start 0 & first=$!
start 1 & second=$!

# wait_for_steps COUNT: until the run has recorded that many steps; fails if its first node ends before.
wait_for_steps() {
    until [ "$(wc -l 2>/dev/null < "$out/metrics.jsonl" || echo 0)" -ge "$1" ]; do
        kill -0 $first
        sleep 0.01
    done
}

# end_within SECONDS: waits for both nodes, kills those that live on for longer, and prints their codes.
end_within() {
    (sleep "$1"; kill -9 $first $second) >/dev/null 2>&1 & killer=$!
    code=0; wait $first || code=$?
    echo "node 0: code $code"
    code=0; wait $second || code=$?
    echo "node 1: code $code"
    kill $killer 2>/dev/null || true
}
