# Needs: node
# Workers, compiled JavaScript, the thread pool.
cat > w.js <<'J'
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
if (isMainThread) { let sum = 0, left = 3; for (let i = 0; i < 3; i++) { const w = new Worker(__filename, { workerData: i }); w.on('message', m => { sum += m; }); w.on('exit', () => { if (--left == 0) { console.log('sum', sum); const z = require('zlib'); z.gzip(Buffer.alloc(100000, 'ab'), (e, b) => { console.log(b.length); require('crypto').pbkdf2('a', 'b', 1000, 32, 'sha256', (e, k) => { console.log(k.toString('hex')); process.exitCode = 9; }); }); } }); } }
else { function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); } parentPort.postMessage(fib(22 + workerData)); }
J
$T node w.js; echo $?
