# Needs: lz4
# Compresses.
$T lz4 -q -c $IN/text > o; echo $?
cksum < o
