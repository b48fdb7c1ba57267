# Needs: ls date cat
# Read the system.
$T cat /proc/self/maps | grep -c r-xp > /dev/null
$T ls $IN/project | wc -l
$T date -d @0 -u
