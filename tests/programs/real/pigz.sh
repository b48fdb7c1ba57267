# Needs: pigz gzip
# Compresses by threads.
$T pigz -p4 -c $IN/text > o; echo $?
gzip -dc < o | cksum
