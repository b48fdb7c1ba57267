# Needs: curl python3
# Loads from a local server.
(cd $IN && exec python3 -m http.server $PORT --bind 127.0.0.1 > /dev/null 2>&1) &
server=$!
for i in $(seq 100); do curl -s -o page http://127.0.0.1:$PORT/page && break; sleep 0.1; done
$T curl -s http://127.0.0.1:$PORT/page -o page; echo $?
cksum < page
$T curl -s -o absent http://127.0.0.1:$PORT/absent -w '%{http_code}\n'
kill $server
