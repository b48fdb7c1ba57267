# Needs: gzip
# Compresses.
$T gzip -n -c < $IN/text > o; echo $?
cksum < o
