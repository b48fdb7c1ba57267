# Needs: zstd
# Compresses by threads.
$T zstd -T4 -q -3 -c $IN/text > o; echo $?
zstd -dc < o | cksum
