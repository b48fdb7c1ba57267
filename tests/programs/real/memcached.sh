# Needs: memcached python3
# Serves six clients by four threads.
$T memcached -p $PORT -U 0 -t 4 -l 127.0.0.1 -P $PWD/pid &
server=$!
python3 -c "
import socket, threading, time
def connected():
    for i in range(1200):
        try:
            return socket.create_connection(('127.0.0.1', $PORT))
        except OSError:
            time.sleep(0.1)
    raise SystemExit('no server')
def work(number, found):
    stream = connected().makefile('rwb')
    for i in range(200):
        key = b'k%d-%d' % (number, i)
        stream.write(b'set ' + key + b' 0 0 5\r\nhello\r\nget ' + key + b'\r\n')
        stream.flush()
        found.append(b''.join(stream.readline() for _ in range(4)).replace(key, b'key'))
connected()
found = []
threads = [threading.Thread(target=work, args=(number, found)) for number in range(6)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(found), set(found))
"
kill -TERM $(cat pid)
wait $server; echo $?
