# Needs: xz
# Compresses by threads.
$T xz -T4 --block-size=300KiB -1 -k -c $IN/text > o; echo $?
xz -d < o | cksum
cksum < o
