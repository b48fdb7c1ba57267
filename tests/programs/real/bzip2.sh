# Needs: bzip2
# Compresses.
$T bzip2 -k -c $IN/text > o; echo $?
cksum < o
