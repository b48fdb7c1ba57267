# Needs: lighttpd curl
# Serves.
cat > conf <<END
server.document-root = "$IN"
server.port = $PORT
server.bind = "127.0.0.1"
server.pid-file = "$PWD/pid"
END
$T lighttpd -D -f conf 2> /dev/null &
server=$!
for i in $(seq 1200); do curl -s -o page http://127.0.0.1:$PORT/page && break; sleep 0.1; done
for i in 1 2 3 4 5; do curl -s http://127.0.0.1:$PORT/page | cksum; done
kill -TERM $(cat pid)
wait $server; echo $?
