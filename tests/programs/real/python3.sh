# Needs: python3
# Threads that take from a queue, modules in C, a child.
$T python3 -c "
import threading, queue, hashlib, json, re, sqlite3
q = queue.Queue(); total = [0]; lock = threading.Lock()
def work():
    while True:
        i = q.get()
        if i is None: return
        h = int(hashlib.sha256(str(i).encode()).hexdigest()[:8], 16)
        with lock: total[0] += h
ts = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in ts]
[q.put(i) for i in range(2000)]
[q.put(None) for _ in ts]
[t.join() for t in ts]
import subprocess
print(total[0], json.dumps([1, {'a': 2}]), re.findall('a+', 'baab'), subprocess.run(['echo', 'x'], capture_output=True).stdout)
raise SystemExit(5)
"; echo $?
