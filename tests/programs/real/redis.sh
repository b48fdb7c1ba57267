# Needs: redis-server redis-benchmark redis-cli
# Serves a benchmark and a script, and saves in a child.
$T redis-server --port $PORT --save '' --appendonly no --io-threads 4 --daemonize no > log 2>&1 &
server=$!
for i in $(seq 1200); do redis-cli -p $PORT ping 2> /dev/null | grep -q PONG && break; sleep 0.1; done
redis-benchmark -p $PORT -n 2000 -c 10 -q -t set,get,lpush,lrange_100,zadd -P 4 | tr '\r' '\n' | grep -c 'requests per second'
redis-cli -p $PORT set a 5
redis-cli -p $PORT incr a
redis-cli -p $PORT eval 'return redis.call("get", KEYS[1])' 1 a
redis-cli -p $PORT bgsave
while redis-cli -p $PORT info persistence | grep -q bgsave_in_progress:1; do sleep 0.1; done
redis-cli -p $PORT info persistence | grep last_bgsave_status
redis-cli -p $PORT shutdown nosave
wait $server; echo $?
