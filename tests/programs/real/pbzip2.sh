# Needs: pbzip2 bzip2
# Compresses by threads (C++).
$T pbzip2 -p4 -k -c $IN/text > o; echo $?
bzip2 -dc < o | cksum
