# Needs: ld.lld cc
# Links by threads.
gcc -shared -o x.so -xc /dev/null
$T ld.lld --threads=4 -shared -o y.so $IN/hello.o --whole-archive /usr/lib/x86_64-linux-gnu/libm-2.36.a 2>/dev/null; echo $?
$T ld.lld --threads=4 -r -o r.o $IN/hello.o; echo $?
cksum < r.o
