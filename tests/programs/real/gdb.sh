# Needs: gdb cc
# Debugs a program of two threads.
$T gdb -q -batch -nx -ex 'break f' -ex run -ex bt -ex 'print 6*7' -ex c $IN/hello 2>/dev/null | sed -E 's/0x[0-9a-f]+|LWP [0-9]+/N/g' | grep -v "^\[\|warning"; echo $?
