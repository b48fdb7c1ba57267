# Needs: rsync
# Copies folders by three processes.
mkdir d
$T rsync -a $IN/project/ $IN/page d/; echo $?
(cd d && find . -type f | sort | xargs cksum)
