# Needs: g++
# Starts the compiler, the assembler and the linker.
$T g++ -g -O1 -pthread $IN/hello.cpp -o o; echo $?
./o; echo $?
