# Needs: sort
# Sorts by threads.
$T sort --parallel=4 -S 2M $IN/text | cksum
