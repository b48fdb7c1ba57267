# Needs: bash
# Forks, pipes, a signal.
$T bash -c 'x=0; for i in $(seq 200); do x=$((x+i)); done; echo $x; (exit 3); echo $?; echo a | cat | tr a b; trap "echo usr" USR1; kill -USR1 $$; wait; exit 8'; echo $?
