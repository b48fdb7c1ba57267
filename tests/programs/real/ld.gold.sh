# Needs: ld.gold cc
# Links by threads.
$T g++ -fuse-ld=gold -Wl,--threads $IN/hello.cpp -o o -pthread; echo $?
./o
