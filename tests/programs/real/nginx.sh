# Needs: nginx curl
# Serves by two processes.
cat > conf <<END
daemon off;
worker_processes 2;
pid $PWD/pid;
events {}
http {
    access_log off;
    client_body_temp_path $PWD/a;
    proxy_temp_path $PWD/b;
    fastcgi_temp_path $PWD/c;
    uwsgi_temp_path $PWD/d;
    scgi_temp_path $PWD/e;
    server { listen 127.0.0.1:$PORT; root $IN; }
}
END
$T nginx -e $PWD/errors -c $PWD/conf &
server=$!
for i in $(seq 1200); do curl -s -o page http://127.0.0.1:$PORT/page && break; sleep 0.1; done
for i in 1 2 3 4 5; do curl -s http://127.0.0.1:$PORT/page | cksum; done
kill -QUIT $(cat pid)
wait $server; echo $?
