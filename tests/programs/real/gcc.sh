# Needs: gcc
# Starts the compiler, the assembler and the linker.
$T gcc -g -O2 -pthread $IN/hello.c -o o; echo $?
./o; echo $?
