# Needs: awk grep sed
# Count and search.
$T awk '{ n[$1]++ } END { for (k in n) s += n[k]; print s }' $IN/text
$T grep -c the $IN/text
$T sed -n 5p $IN/text
